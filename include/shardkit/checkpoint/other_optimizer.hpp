// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/name_table.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// The library's optimizers by the states that they keep, in order of their names.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 5> optimizers_by_states{
    {{"exp_avg, exp_avg_sq", "AdamW"},
     {"exp_avg, exp_avg_sq, max_exp_avg_sq", "AMSGrad"},
     {"exp_avg, exp_avg_sq, momentum_buffer", "Muon"},
     {"exp_avg", "Lion"},
     {"momentum_buffer", "SGD with momentum"}}};

/// "an optimizer that keeps exp_avg, exp_avg_sq, as AdamW"
inline std::string optimizer_in_words(const NameIndex& states) {
    if (states.empty()) { return "no optimizer, or one that keeps no states"; }
    std::string listed;
    for (const auto& [name, number] : states.sorted()) { listed += concat(listed.empty() ? "" : ", ", name); }
    for (const auto& [names, optimizer] : optimizers_by_states) {
        if (listed == names) { return concat("an optimizer that keeps ", listed, ", as ", optimizer); }
    }
    return concat("an optimizer that keeps ", listed);
}

/// Says that a checkpoint was saved with another optimizer than it is loaded into, by the states that each keeps, and
/// what to do. The returned text ends with the subject of the sentence that follows: "it".
template <class Files, class SavedGroups>
std::string other_optimizer(Files& files, const SavedGroups& groups) {
    NameIndex saved;
    NameIndex here;
    for (const auto& stored : files.tensors()) {
        if (const auto state = StoredKind::state_of(files.kind(stored))) { saved.add(*state); }
    }
    for (const auto& group : groups) {
        for (const auto& values : group->values) {
            if (values->kind.role == Role::states) { here.add(values->kind.state); }
        }
    }
    const std::string its = optimizer_in_words(saved);
    const std::string ours = optimizer_in_words(here);
    if (its == ours) { return "it "; }
    return concat("was saved with ", its, ", and is loaded into ", ours,
                  ": checkpoint::LoadOptions::states = false loads the parameters alone. It ");
}

}  // namespace shardkit::detail
