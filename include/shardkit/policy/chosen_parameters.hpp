// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/sharded_options.hpp>

namespace shardkit::detail {

/// Refuses an overwritten gradient of a parameter with a second name: each use adds to it, and none is always first.
constexpr void require_untied(std::string_view path, std::span<const PlacedParameter> parameters,
                              std::span<const ParameterName> names, SourceLocation where) {
    for (const ParameterName& each : names) {
        const PlacedParameter& named = parameters[each.number];
        if (!named.overwritten || each.name == named.name) { continue; }
        throw_invalid_argument(where, "'", path, "' parameter '", named.name, "': an overwritten gradient, and '",
                               each.name, "' is another name of it, expected one use that writes the gradient");
    }
}

/// Returns the parameters of `tensors`, combined with the options and not yet placed. They are an array if the
/// compiler knows their number, so that a plan works in constant expressions. A TensorList is checked here; the
/// extents of types are checked when they are placed.
template <class Group, class Policy>
constexpr auto chosen_parameters(std::string_view path, const TensorsOf<Group>& tensors,
                                 const ShardedOptions<Group, Policy>& options, SourceLocation where) {
    const auto chosen = [&](auto parameters) {
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            static_cast<ParameterRecord&>(parameters[p]) = tensors.record(p);
            options.choose(p, parameters[p]);
        }
        require_untied(path, parameters, Group::all_names, where);
        return parameters;
    };
    if constexpr (requires { TensorsOf<Group>::count; }) {
        return chosen(std::array<PlacedParameter, TensorsOf<Group>::count>{});
    } else {
        tensors.check(path, where);
        return chosen(std::vector<PlacedParameter>(tensors.size()));
    }
}

}  // namespace shardkit::detail
