// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <shardkit/policy/policy_values.hpp>

namespace shardkit {

namespace detail {
template <class P>
concept HasName = requires(const P policy) {
    { policy.name } -> std::convertible_to<std::string_view>;
};
template <class P>
concept HasParameters = requires(const P policy) {
    { policy.parameters } -> std::convertible_to<Placement>;
};
template <class P>
concept HasGradients = requires(const P policy) {
    { policy.gradients } -> std::convertible_to<Placement>;
};
template <class P>
concept HasOptimizer = requires(const P policy) {
    { policy.optimizer } -> std::convertible_to<Placement>;
};
template <class P>
concept HasAccumulate = requires(const P policy) {
    { policy.accumulate } -> std::convertible_to<Accumulate>;
};
template <class P>
concept HasRelease = requires(const P policy) {
    { policy.release } -> std::convertible_to<Release>;
};
template <class P>
concept HasShardGroup = requires(const P policy, std::size_t dp) {
    { policy.shard_group(dp) } -> std::convertible_to<std::size_t>;
};
template <class P>
concept PolicyOfMembers = HasName<P> && HasParameters<P> && HasGradients<P> && HasOptimizer<P> && HasAccumulate<P> &&
    HasRelease<P> && HasShardGroup<P>;
template <class P>
concept PolicyOfValues = requires(const P policy, std::size_t dp) {
    { policy.values(dp) } -> std::same_as<rules::PolicyValues>;
};
}  // namespace detail

/// A policy decides how a group's parameters, gradients and optimizer states lie over the data ranks. It is a plain
/// struct with the constant members of PolicyOfMembers; `FullShard` of policy/policies.hpp is an example to copy.
/// `shard_group(dp)` is the number of data-parallel ranks that share one copy; it must divide dp. Optionally, `using
/// shard_axes = Axes<DpShard, Cp>` shards over the context-parallel ranks as well, and an AxisPlacements
/// `across_groups` says how values lie across the groups that share a copy each; `keep` a Keep. A policy that is
/// chosen at run time returns its values for a given dp instead: DynamicPolicy.
template <class P>
concept ShardPolicy = std::copyable<P> &&(detail::PolicyOfMembers<P> || detail::PolicyOfValues<P>);

}  // namespace shardkit

namespace shardkit::rules {

/// A policy whose placements the compiler knows: all except DynamicPolicy.
template <class P>
concept StaticPolicy = ShardPolicy<P> && requires {
    typename std::bool_constant<(P::parameters == P::optimizer)>;
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {
/// Checks that a type can serve as a policy, with one sentence for each member that is missing.
template <class P>
struct PolicyMembers {
    static constexpr bool by_values = PolicyOfValues<P>;
    static constexpr bool has_name = by_values || HasName<P>;
    static constexpr bool has_parameters = by_values || HasParameters<P>;
    static constexpr bool has_gradients = by_values || HasGradients<P>;
    static constexpr bool has_optimizer = by_values || HasOptimizer<P>;
    static constexpr bool has_accumulate = by_values || HasAccumulate<P>;
    static constexpr bool has_release = by_values || HasRelease<P>;
    static constexpr bool has_shard_group = by_values || HasShardGroup<P>;
    static_assert(has_name,
                  "ShardPolicy: `name` is missing, expected a std::string_view; see policy/shard_policy.hpp");
    static_assert(has_parameters, "ShardPolicy: `parameters` is missing, expected a Placement");
    static_assert(has_gradients, "ShardPolicy: `gradients` is missing, expected a Placement");
    static_assert(has_optimizer, "ShardPolicy: `optimizer` is missing, expected a Placement");
    static_assert(has_accumulate, "ShardPolicy: `accumulate` is missing, expected an Accumulate");
    static_assert(has_release, "ShardPolicy: `release` is missing, expected a Release");
    static_assert(has_shard_group, "ShardPolicy: `shard_group(dp)` is missing, expected a function of dp");
    static constexpr bool are_there = true;
};

template <class P>
constexpr AxisNames shard_axes_of(const AxisNames& otherwise) {
    if constexpr (requires { typename P::shard_axes; }) {
        return typename P::shard_axes{};
    } else {
        return otherwise;
    }
}
}  // namespace detail

}  // namespace shardkit
