// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <shardkit/policy/policy_values.hpp>

namespace shardkit::detail {

template <class P>
concept PolicyOfMembers = requires(const P policy, std::size_t dp) {
    { policy.name } -> std::convertible_to<std::string_view>;
    { policy.parameters } -> std::convertible_to<Placement>;
    { policy.gradients } -> std::convertible_to<Placement>;
    { policy.optimizer } -> std::convertible_to<Placement>;
    { policy.accumulate } -> std::convertible_to<Accumulate>;
    { policy.release } -> std::convertible_to<Release>;
    { policy.shard_group(dp) } -> std::convertible_to<std::size_t>;
};
template <class P>
concept PolicyOfValues = requires(const P policy, std::size_t dp) {
    { policy.values(dp) } -> std::same_as<rules::PolicyValues>;
};

/// Refuses a type that lacks a member of a policy, which the compiler then names.
template <class P>
constexpr bool has_members_of_policy() {
    if constexpr (!PolicyOfValues<P>) {
        static_assert(PolicyOfMembers<P>, "ShardPolicy: a member is missing; see policy/shard_policy.hpp");
    }
    return true;
}
template <class P>
constexpr AxisNames shard_axes_of(const AxisNames& otherwise) {
    if constexpr (requires { typename P::shard_axes; }) {
        return typename P::shard_axes{};
    } else {
        return otherwise;
    }
}

}  // namespace shardkit::detail

namespace shardkit {

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
