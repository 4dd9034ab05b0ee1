// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <shardkit/comm/statement.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/number_text.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/optim/param_group.hpp>

namespace shardkit::detail {

/// A rule's own name; without one, those of its states.
template <class Rule>
std::string name_of_rule() {
    if constexpr (requires { std::string_view(Rule::name); }) {
        return std::string(Rule::name);
    } else {
        std::string text = "one with";
        for (const std::string_view state : Rule::state_names) { text += concat(" ", state); }
        return Rule::state_names.empty() ? "one without states" : text;
    }
}

/// What an optimizer states beside each step's learning rate: what it is, and its other hyper-parameters as far as
/// they have the names of a ParamGroup's.
template <class Rule>
Statements optimizer_statements(const typename Rule::Options& options, SourceLocation where) {
    Statements stated{{"optimizer", name_of_rule<Rule>(), where}};
    if constexpr (requires { static_cast<unsigned>(options.rule); }) {
        stated.push_back({"momentum rule", concat("number ", static_cast<unsigned>(options.rule)), where});
    }
    for_each_own(ParamGroup{}, [&](std::string_view name, const auto& /*given*/, auto member) {
        if constexpr (std::is_invocable_v<decltype(member), const typename Rule::Options&>) {
            stated.push_back({std::string(name), number_text(member(options)), where});
        }
    });
    stated.push_back({"weight_decay", number_text(options.weight_decay), where});
    return stated;
}

/// What ParamGroups choose for the parameters of one group; nothing without any.
template <class Rule>
Statements param_group_statements(std::string_view path, std::span<const PlacedParameter> parameters,
                                  std::span<const ParamGroup> param_groups, SourceLocation where) {
    Statements stated;
    if (param_groups.empty()) { return stated; }
    for (const PlacedParameter& parameter : parameters) {
        std::string text = "none";
        for (const ParamGroup& group : param_groups) {
            if (parameter.frozen || !group.matches(path, parameter.name)) { continue; }
            text = concat("learning_rate_scale ", number_text(group.learning_rate_scale));
            const auto add = [&](std::string_view name, const std::optional<double>& given, auto /*member*/) {
                if (given) { text += concat(", ", name, " ", number_text(*given)); }
            };
            add("weight_decay", group.weight_decay, 0);
            for_each_own(group, add);
            break;
        }
        stated.push_back({concat("ParamGroup of '", path, "' parameter '", parameter.name, "'"), text, where});
    }
    return stated;
}

}  // namespace shardkit::detail
