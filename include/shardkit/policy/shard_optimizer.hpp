// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Shards optimizer states and reduced gradients, as ZeRO stage 1 does. Needs one reduce-scatter and one all-gather
/// per step, whatever the number of microbatches; full gradients are kept while microbatches add to them.
/// Source:  ZeRO, arXiv 1910.02054, section 5.1
struct ShardOptimizer {
    static constexpr std::string_view name = "shard_optimizer";
    static constexpr Placement parameters = Placement::replicated;
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
    static constexpr Accumulate accumulate = Accumulate::unreduced;
    static constexpr Release release = Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

static_assert(ShardPolicy<ShardOptimizer> && rules::PolicyRules<ShardOptimizer>::hold);

}  // namespace shardkit
