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
    { policy.values(dp) } -> std::same_as<PolicyValues>;
};
}  // namespace detail

/// What decides how a group's parameters, gradients and optimizer states lie over the data ranks.
/// A plain struct with the members of PolicyOfMembers, constants all; `policy/full_shard.hpp` is a model to copy.
/// `shard_group(dp)` is the number of data-parallel ranks that share one copy; it must divide dp. Optional: `using
/// shard_axes = Axes<DpShard, Cp>` to shard over the context-parallel ranks as well. Or one that is chosen when the
/// program runs, and says its values for a dp: DynamicPolicy.
template <class P>
concept ShardPolicy = std::copyable<P> &&(detail::PolicyOfMembers<P> || detail::PolicyOfValues<P>);

/// A policy whose placements are known to the compiler: every one but a DynamicPolicy.
template <class P>
concept StaticPolicy = ShardPolicy<P> && requires {
    typename std::bool_constant<(P::parameters == P::optimizer)>;
};

namespace detail {
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
