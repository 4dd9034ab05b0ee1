// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/name_table.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// "an optimizer that keeps exp_avg, exp_avg_sq, as AdamW"
inline std::string optimizer_in_words(const NameIndex& states, const NameIndex& rules) {
    if (states.empty()) { return "no optimizer, or one that keeps no states"; }
    std::string text = "an optimizer that keeps";
    const auto list = [&](const NameIndex& names, std::string_view before) {
        for (const auto& [name, number] : names.sorted()) {
            append(text, before, name);
            before = ", ";
        }
    };
    list(states, " ");
    list(rules, ", as ");
    return text;
}

/// The beginning of what is said of files whose optimizer is not another one.
inline constexpr std::string_view no_other_optimizer = "it ";

/// Says that a checkpoint was saved with another optimizer than it is loaded into, by the states that each keeps, and
/// what to do. The returned text ends with the subject of the sentence that follows: "it".
template <class Files, class SavedGroups>
std::string other_optimizer(Files& files, const SavedGroups& groups) {
    NameIndex saved, saved_by, here, here_by;
    for (const auto& stored : files.tensors()) {
        const auto state = StoredKind::state_of(files.kind(stored));
        if (state && !state->ends_with(scales_ending)) { saved.add(*state); }
        if (!stored.rule.empty()) { saved_by.add(stored.rule); }
    }
    for (const auto& group : groups) {
        for (const auto& values : group->values) {
            if (!has(values->of, 1) || values->kind.role != Role::states) { continue; }
            here.add(values->kind.state);
            here_by.add(values->rule);
        }
    }
    const std::string its = optimizer_in_words(saved, saved_by);
    const std::string ours = optimizer_in_words(here, here_by);
    if (its == ours) { return std::string(no_other_optimizer); }
    return concat("was saved with ", its, ", and is loaded into ", ours,
                  ": checkpoint::LoadOptions::states = false loads the parameters alone. It ");
}

}  // namespace shardkit::detail
