// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Shards optimizer states and gradients, as ZeRO stage 2 does. Gradients are reduced to the shard after every
/// microbatch, so that no full gradient outlives its backward pass. M microbatches need M reduce-scatters and one
/// all-gather per step.
/// Source:  ZeRO, arXiv 1910.02054, section 5.2
struct ShardGradOp {
    static constexpr std::string_view name = "shard_grad_op";
    static constexpr Placement parameters = Placement::replicated;
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
    static constexpr Accumulate accumulate = Accumulate::reduced;
    static constexpr Release release = Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

static_assert(ShardPolicy<ShardGradOp> && rules::PolicyRules<ShardGradOp>::hold);

}  // namespace shardkit
