// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/policy/placement.hpp>

namespace shardkit {

/// Where the gradients of several microbatches are added up.
enum class Accumulate : std::uint8_t {
    unreduced,  ///< full gradients are added, one reduction at the last microbatch
    reduced     ///< every microbatch is reduced into the shard: M reductions, no full-size gradient at rest
};

/// When the full copy of parameters that are sharded at rest is given back.
enum class Release : std::uint8_t { never, at_update, at_reshard };

/// What decides how a group's parameters, gradients and optimizer states lie over the data ranks.
/// A plain struct with these members, constants all; `policy/full_shard.hpp` is a model to copy. `shard_group(dp)` is
/// the number of data-parallel ranks that share one copy; it must divide dp. Optional: `using shard_axes =
/// Axes<DpShard, Cp>` to shard over the context-parallel ranks as well.
template <class P>
concept ShardPolicy = std::copyable<P> && requires(const P policy, std::size_t dp) {
    { policy.name } -> std::convertible_to<std::string_view>;
    { policy.parameters } -> std::convertible_to<Placement>;
    { policy.gradients } -> std::convertible_to<Placement>;
    { policy.optimizer } -> std::convertible_to<Placement>;
    { policy.accumulate } -> std::convertible_to<Accumulate>;
    { policy.release } -> std::convertible_to<Release>;
    { policy.shard_group(dp) } -> std::convertible_to<std::size_t>;
};

/// A policy whose placements are known to the compiler: every one but a DynamicPolicy.
template <class P>
concept StaticPolicy = ShardPolicy<P> && requires {
    typename std::bool_constant<(P::parameters == P::optimizer)>;
};

namespace detail {
template <class P>
struct ShardAxesOf {
    using type = Axes<DpShard>;
};
template <class P>
requires requires { typename P::shard_axes; }
struct ShardAxesOf<P> {
    using type = typename P::shard_axes;
};
}  // namespace detail

/// The axes over which policy P shards: Axes<DpShard> unless it says otherwise.
template <class P>
using ShardAxes = typename detail::ShardAxesOf<P>::type;

/// The data axes that remain: across them, shards are replicas of each other.
template <class P>
using ReplicaAxes = AxesWithout<DataAxes, ShardAxes<P>>;

}  // namespace shardkit
