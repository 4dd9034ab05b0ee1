// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>
#include <shardkit/optim/options.hpp>

namespace shardkit {

namespace detail {

/// f(name, what a group gives, the options' member of that name) for each but the weight decay; the member is not
/// invocable with options that have none.
template <class F>
void for_each_own(const ParamGroup& group, const F& f) {
    f("beta1", group.beta1, [](auto& options) -> decltype((options.beta1)) { return options.beta1; });
    f("beta2", group.beta2, [](auto& options) -> decltype((options.beta2)) { return options.beta2; });
    f("epsilon", group.epsilon, [](auto& options) -> decltype((options.epsilon)) { return options.epsilon; });
    f("momentum", group.momentum, [](auto& options) -> decltype((options.momentum)) { return options.momentum; });
}
/// Whether it gives any hyper-parameter.
inline bool has_values(const ParamGroup& group) {
    bool any = group.learning_rate_scale != 1 || group.weight_decay;
    for_each_own(group, [&](auto, const auto& given, auto) { any = any || given; });
    return any;
}

}  // namespace detail

/// Refuses a group of parameters without a match function, or numbers out of range.
/// @throws std::invalid_argument that names what is out of range
inline void validate(const ParamGroup& group, SourceLocation where) {
    detail::validate_number("ParamGroup", "learning_rate_scale", group.learning_rate_scale, rules::not_negative,
                            where);
    if (group.weight_decay) {
        detail::validate_number("ParamGroup", "weight_decay", *group.weight_decay, rules::not_negative, where);
    }
    if (!group.matches) { throw_invalid_argument(where, "ParamGroup: matches is empty, expected a function"); }
    require_argument(group.updated_by == UpdatedBy::own || !detail::has_values(group), where,
                     "ParamGroup: hyper-parameters are given for parameters that another optimizer updates");
}

namespace detail {

/// The number of the first group that a parameter is of; no_param_group: of none.
inline constexpr std::size_t no_param_group = static_cast<std::size_t>(-1);
inline std::size_t param_group_of(std::string_view path, std::string_view parameter,
                                  std::span<const ParamGroup> groups) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].matches(path, parameter)) { return g; }
    }
    return no_param_group;
}
inline bool is_left_out(std::size_t group, std::span<const ParamGroup> groups) {
    return group != no_param_group && groups[group].updated_by == UpdatedBy::another;
}
/// The number of a parameter's hyper-parameters in the list of chosen_options. `decay`: its attribute.
constexpr std::size_t options_number(std::size_t param_group, bool decay) noexcept {
    return 2 * (param_group + 1) + (decay ? 0 : 1);
}

/// An optimizer's options with what a group replaces.
/// @throws std::invalid_argument when they have no such member
template <class Options>
Options options_of(const ParamGroup& group, Options options, SourceLocation where) {
    for_each_own(group, [&](std::string_view name, const std::optional<double>& given, auto member) {
        if (!given) { return; }
        if constexpr (std::is_invocable_v<decltype(member), Options&>) {
            member(options) = *given;
        } else {
            throw_invalid_argument(where, "ParamGroup: ", name, " is given, which this optimizer does not have");
        }
    });
    if (group.weight_decay) { options.weight_decay = *group.weight_decay; }
    return options;
}

}  // namespace detail

}  // namespace shardkit
