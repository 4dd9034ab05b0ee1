// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Shards parameters, gradients and optimizer states, as ZeRO stage 3 does. Full parameters exist only while a window
/// is open. M microbatches need M reduce-scatters and 2 M all-gathers per step.
/// Source:  ZeRO, arXiv 1910.02054, section 5.3
struct FullShard {
    static constexpr std::string_view name = "full_shard";
    static constexpr Placement parameters = Placement::sharded;
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
    static constexpr Accumulate accumulate = Accumulate::reduced;
    static constexpr Release release = Release::at_reshard;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

static_assert(ShardPolicy<FullShard> && rules::PolicyRules<FullShard>::hold);

}  // namespace shardkit
