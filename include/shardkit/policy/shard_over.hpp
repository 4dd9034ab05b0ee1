// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Shards as `Policy` does, but over other axes. ShardOver<FullShard, Axes<DpShard, Cp>> shards over the flattened dp
/// x cp ranks, so that context parallelism also divides parameters, gradients and states.
template <ShardPolicy Policy, class AxisSet>
struct ShardOver : Policy {
    using Policy::Policy;
    using shard_axes = AxisSet;
};

}  // namespace shardkit
