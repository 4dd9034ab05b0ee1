// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// A policy as run-time values: what the planner and tables work on.
struct PolicyTraits {
    std::string_view name;
    Placement parameters{};
    Placement gradients{};
    Placement optimizer{};
    Accumulate accumulate{};
    Release release{};
    std::size_t shard_group = 1;  ///< data-parallel ranks that share one copy
    std::size_t cp_shards = 1;    ///< cp when the policy also shards over context-parallel ranks, else 1
};

/// A policy's values on a mesh of these extents.
/// @throws nothing; whether shard_group divides dp is checked by the mesh
template <ShardPolicy Policy>
constexpr PolicyTraits policy_traits(const Policy& policy, std::size_t dp, std::size_t cp) {
    static_assert(PolicyRules<Policy>::hold);
    return {policy.name,
            policy.parameters,
            policy.gradients,
            policy.optimizer,
            policy.accumulate,
            policy.release,
            static_cast<std::size_t>(policy.shard_group(dp)),
            ShardAxes<Policy>::template contains<Cp> ? cp : 1};
}

}  // namespace shardkit
