// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/sharded/host_conversions.hpp>

// The two passes of a MatrixRule over elements.

namespace shardkit::detail {

/// What becomes of elements behind the transformation of their matrix, as a rule without states.
template <class Rule>
struct AppliedRule {
    template <class A>
    using Update = std::remove_cvref_t<decltype(std::declval<const typename Rule::template Update<A>&>().apply(
        rules::MatrixExtents{}))>;
    static constexpr std::array<std::string_view, 0> state_names{};
};

/// Of elements that all are in the arithmetic type.
inline constexpr HostConversions in_arithmetic{};
/// Returns the first pass over some elements, which writes their directions.
template <std::floating_point A>
AnyUpdateWork direction_of(const AnyUpdateWork& of, std::span<const rules::UpdateRange> ranges, A* to) {
    return {
        .rule = of.rule,
        .conversions = &in_arithmetic,
        .load_gradients = of.load_gradients,
        .ranges = ranges,
        .updates = of.updates,
        .skip = of.skip,
        .count = of.count,
        .arithmetic = element_type_of<A>,
        .updated = element_type_of<A>,
        .gathers = element_type_of<A>,
        .gradients = of.gradients,
        .master = to,
        .gradient = of.gradient,
        .states = of.states,
        .state_count = of.state_count,
    };
}
/// Returns the second pass, along what has become of the directions.
template <class Rule, std::floating_point A>
AnyUpdateWork moved_by(AnyUpdateWork of, std::span<const rules::UpdateRange> ranges, const AnyRuleUpdate* updates,
                       const A* along) {
    of.rule = &updates_of<AppliedRule<Rule>, host::AnyKernels::Loops>;
    of.ranges = ranges;
    of.updates = updates;
    of.state_count = 0;
    return of.along(along);
}

}  // namespace shardkit::detail
