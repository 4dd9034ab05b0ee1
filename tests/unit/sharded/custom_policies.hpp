// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policies.hpp>

/// Policies as a user may write them: placements that no policy of the library has.
namespace toy {

namespace sk = shardkit;

/// FullShard that keeps the gathered copy until the update makes it stale: one all-gather per step.
struct KeepUntilUpdate : sk::FullShard {
    static constexpr std::string_view name = "keep_until_update";
    static constexpr sk::Release release = sk::Release::at_update;
};

/// Gradients all-reduced as in data parallelism, for a user who wants to look at them; the optimizer is sharded.
struct ReplicateGradients {
    static constexpr std::string_view name = "replicate_gradients";
    static constexpr sk::Placement parameters = sk::Placement::replicated;
    static constexpr sk::Placement gradients = sk::Placement::replicated;
    static constexpr sk::Placement optimizer = sk::Placement::sharded;
    static constexpr sk::Accumulate accumulate = sk::Accumulate::unreduced;
    static constexpr sk::Release release = sk::Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

/// Sharded parameters, but gradients of all microbatches are added before one reduce-scatter.
struct ReduceOnce : sk::FullShard {
    static constexpr std::string_view name = "reduce_once";
    static constexpr sk::Accumulate accumulate = sk::Accumulate::unreduced;
};

/// ZeRO-2 within pairs of neighbours, replicas across; everything where dp is odd.
struct PairedGradOp : sk::ShardGradOp {
    static constexpr std::string_view name = "paired_grad_op";
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp % 2 == 0 ? 2 : 1; }
};

}  // namespace toy
