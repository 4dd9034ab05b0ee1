// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <shardkit/policy/shard_policy.hpp>

namespace shardkit {

namespace detail {
template <class Policy>
struct ShardAxesRule {
    static constexpr bool shards_over_dp =
        std::is_same_v<ShardAxes<Policy>, Axes<DpShard>> || std::is_same_v<ShardAxes<Policy>, Axes<DpShard, Cp>>;
    static_assert(shards_over_dp, "impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>");
};
}  // namespace detail

/// Refuses, at compile time and each with its own sentence, combinations of placements that cannot work.
/// @post PolicyRules<P>::hold is true when P is possible
template <class Policy>
struct PolicyRules : detail::ShardAxesRule<Policy> {
    static constexpr bool parameters_at_rest = Policy::parameters != Placement::partial &&
                                               Policy::gradients != Placement::partial &&
                                               Policy::optimizer != Placement::partial;
    static_assert(parameters_at_rest,
                  "impossible policy: parameters, reduced gradients and optimizer are replicated or sharded, "
                  "never partial");

    static constexpr bool optimizer_reaches_parameters =
        Policy::parameters != Placement::sharded || Policy::optimizer == Placement::sharded;
    static_assert(optimizer_reaches_parameters,
                  "impossible policy: sharded parameters need a sharded optimizer; a replicated one would update "
                  "parameters that the rank does not hold");

    static constexpr bool optimizer_sees_gradients =
        Policy::optimizer != Placement::replicated || Policy::gradients == Placement::replicated;
    static_assert(optimizer_sees_gradients,
                  "impossible policy: a replicated optimizer needs replicated gradients; with sharded ones it "
                  "would see one shard only");

    static constexpr bool accumulates_into_a_shard =
        Policy::accumulate != Accumulate::reduced || Policy::gradients == Placement::sharded;
    static_assert(accumulates_into_a_shard,
                  "impossible policy: accumulating reduced gradients needs sharded gradients");

    static constexpr bool release_has_something_to_free = Policy::parameters == Placement::sharded
                                                              ? Policy::release != Release::never
                                                              : Policy::release == Release::never;
    static_assert(release_has_something_to_free,
                  "impossible policy: sharded parameters are released at_update or at_reshard, replicated ones "
                  "never");

    static constexpr bool hold = parameters_at_rest && optimizer_reaches_parameters && optimizer_sees_gradients &&
                                 accumulates_into_a_shard && release_has_something_to_free &&
                                 PolicyRules::shards_over_dp;
};

}  // namespace shardkit
