// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/slice_order.hpp>

namespace shardkit {

/// Replicates everything and all-reduces gradients once per step: plain distributed data parallelism. Each of the
/// next three is the one before it but for what it says. Shards are virtual: they only fix the order in which the
/// global norm is summed.
struct NoShard {
    static constexpr std::string_view name = "no_shard";
    static constexpr Placement parameters = Placement::replicated;
    static constexpr Placement gradients = Placement::replicated;
    static constexpr Placement optimizer = Placement::replicated;
    static constexpr Accumulate accumulate = Accumulate::unreduced;
    static constexpr Release release = Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

/// Shards optimizer states and reduced gradients, as ZeRO stage 1 does. Needs one reduce-scatter and one all-gather
/// per step, whatever the number of microbatches; full gradients are kept while microbatches add to them.
/// Source:  ZeRO, arXiv 1910.02054, section 5.1
struct ShardOptimizer : NoShard {
    static constexpr std::string_view name = "shard_optimizer";
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
};

/// Shards optimizer states and gradients, as ZeRO stage 2 does. Gradients are reduced to the shard after every
/// microbatch, so that no full gradient outlives its backward pass. M microbatches need M reduce-scatters and one
/// all-gather per step.
/// Source:  ZeRO, arXiv 1910.02054, section 5.2
struct ShardGradOp : ShardOptimizer {
    static constexpr std::string_view name = "shard_grad_op";
    static constexpr Accumulate accumulate = Accumulate::reduced;
};

/// Shards parameters, gradients and optimizer states, as ZeRO stage 3 does. Full parameters exist only while a window
/// is open. M microbatches need M reduce-scatters and 2 M all-gathers per step.
/// Source:  ZeRO, arXiv 1910.02054, section 5.3
struct FullShard : ShardGradOp {
    static constexpr std::string_view name = "full_shard";
    static constexpr Placement parameters = Placement::sharded;
    static constexpr Release release = Release::at_reshard;
};

/// Shards fully within groups of N neighbouring data-parallel ranks and replicates across the groups. Gradients are
/// reduced within the group in every microbatch; at the last one the shards are all-reduced across groups.
/// N must divide dp. `HybridShard<dynamic>{n}` takes it at run time.
/// Source:  PyTorch FSDP HYBRID_SHARD, arXiv 2304.11277, section 3.2.2
template <std::size_t N>
struct HybridShard : FullShard {
    static_assert(N > 0, "HybridShard<N>: N must be at least 1");
    static constexpr std::string_view name = "hybrid_shard";
    static constexpr std::size_t static_group = N;
    static constexpr std::size_t shard_group(std::size_t /*dp*/) noexcept { return N; }
};

template <>
struct HybridShard<dynamic> : FullShard {
    static constexpr std::string_view name = "hybrid_shard";

    constexpr HybridShard() noexcept = default;
    constexpr explicit HybridShard(std::size_t ranks_per_group, SourceLocation where = SourceLocation::current())
        : HybridShard("HybridShard", ranks_per_group, where) {}
    constexpr std::size_t shard_group(std::size_t /*dp*/) const noexcept { return ranks_per_group_; }

  protected:
    constexpr HybridShard(std::string_view policy, std::size_t ranks_per_group, SourceLocation where)
        : ranks_per_group_(ranks_per_group) {
        require_argument(ranks_per_group != 0, where, policy, ": group of 0 ranks, expected at least 1");
    }

  private:
    std::size_t ranks_per_group_ = 1;
};

/// Shards as HybridShard<N> does, and optimizer states and master weights across the groups too: HFSDP. At the last
/// microbatch the shards of gradients are reduce-scattered across groups instead of all-reduced. The first window
/// after an update gathers what the other groups have updated, a rank's shard of the parameters; all other gathers
/// stay within a group.
/// Memory:  of a bf16 parameter with AdamW, M groups: 2 / N for it, 12 / (N M) for master and states, 4 / N for sums
/// Source:  Megatron-FSDP's hybrid sharding with an outer strategy of optim
template <std::size_t N>
struct HybridOptimizer : HybridShard<N> {
    static constexpr std::string_view name = "hybrid_optimizer";
    static constexpr AxisPlacements across_groups{.states = Placement::sharded};

    constexpr HybridOptimizer() noexcept = default;
    constexpr explicit HybridOptimizer(std::size_t ranks_per_group,
                                       SourceLocation where = SourceLocation::current()) requires(N == dynamic)
        : HybridShard<N>("HybridOptimizer", ranks_per_group, where) {}
};

/// Shards parameters, gradients and optimizer states over all ranks, as FullShard does, and keeps a second shard of
/// the parameters in groups of N neighbouring ranks: ZeRO++'s hpZ. The first window of a step fetches it from the
/// other groups; the backward pass, and later microbatches, gather within a group. Every microbatch is reduced within
/// the group, and then across the groups. The second shard is in the gathered type.
/// Memory:  of a bf16 parameter with AdamW, M groups: 2 / (N M) + 2 / N for it, 16 / (N M) for all else
/// Source:  ZeRO++, arXiv 2306.10209, section 4.2; PyTorch's fully_shard with reshard_after_forward = N
template <std::size_t N>
struct SecondaryShard : HybridShard<N> {
    static constexpr std::string_view name = "secondary_shard";
    static constexpr AxisPlacements across_groups{Placement::sharded, Placement::sharded, Placement::sharded};
    static constexpr Keep keep = Keep::secondary;

    constexpr SecondaryShard() noexcept = default;
    constexpr explicit SecondaryShard(std::size_t ranks_per_group,
                                      SourceLocation where = SourceLocation::current()) requires(N == dynamic)
        : HybridShard<N>("SecondaryShard", ranks_per_group, where) {}
};

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
///     Sharded<Block, TreeSums<FullShard>> block{rank, "blocks.0"};
/// With a number of slices, the microbatches of a rank are added along the same tree, so that a run has the same bits
/// on any number of ranks. `slice_of(model, microbatch)` says which slice is next. Without, microbatches are added in
/// turn.
///     Sharded<Block, TreeSums<FullShard>> block{rank, "blocks.0", {}, {.policy =
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
