// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/slice_order.hpp>

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
/// With a number of slices, the microbatches of a rank are added along the same tree, so that a run has the same bits
/// on any number of ranks. `slice_of(model, microbatch)` says which slice is next. Without, microbatches are added in
/// turn.
///     Sharded<Block, TreeSums<FullShard>, Engine> block{rank, "blocks.0", {}, {.policy =
///     TreeSums<FullShard>{Slices{64}}}};
/// Memory:  with M slices on each rank: slice_sums(M) - 1 full gradients beside the usual buffer where microbatches
///          accumulate unreduced, slice_sums(M) - 2 shards where each is reduced; both in the reduction type
/// Cost:    the same bytes and calls; on NCCL 16-bit gradients travel as they are, half of what a sum in fp32 sends.
/// @throws  UsageError where an engine has no tree sums, std::invalid_argument where ranks are no power of two, both
/// when
///          a group is made
template <ShardPolicy Policy>
struct TreeSums : Policy {
    static constexpr bool is_chosen = detail::PolicyOfValues<Policy>;
    static_assert(!is_chosen, "TreeSums: expected a policy of its own; write DynamicPolicy(TreeSums<FullShard>{})");
    using Policy::Policy;
    static constexpr Summation summation = Summation::tree;
    std::size_t slices = 0;  ///< 0: the batch is not cut

    constexpr TreeSums() = default;
    constexpr explicit TreeSums(const Policy& policy) : Policy(policy) {}
    constexpr explicit TreeSums(Slices cut, const Policy& policy = {}) : Policy(policy), slices(cut.count) {}
};

}  // namespace shardkit
