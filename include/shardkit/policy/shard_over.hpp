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

/// Shards as `Policy` does, and adds gradients over data ranks along a tree, ((r0 + r1) + (r2 + r3)), not in rank
/// order. Then the sum over neighbours, a power of two of them, is one number of the sum over all. Policies agree
/// with each other also where HybridShard adds in groups first, and NCCL's ranks, whose sums are otherwise NCCL's
/// own, have the bits of every other engine.
///     Sharded<Block, TreeSums<FullShard>, Engine> block{rank, "blocks.0"};
/// Cost:    the same bytes and calls; on NCCL 16-bit gradients travel as they are, half of what a sum in fp32 sends.
/// @throws  UsageError where an engine has no tree sums, std::invalid_argument where ranks are no power of two, both
/// when
///          a group is made
template <ShardPolicy Policy>
struct TreeSums : Policy {
    using Policy::Policy;
    static constexpr Summation summation = Summation::tree;
};

}  // namespace shardkit
