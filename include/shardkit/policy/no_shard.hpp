// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Replicates everything and all-reduces gradients once per step: plain distributed data parallelism.
/// Shards are virtual: they only fix the order in which the global norm is summed.
struct NoShard {
    static constexpr std::string_view name = "no_shard";
    static constexpr Placement parameters = Placement::replicated;
    static constexpr Placement gradients = Placement::replicated;
    static constexpr Placement optimizer = Placement::replicated;
    static constexpr Accumulate accumulate = Accumulate::unreduced;
    static constexpr Release release = Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

static_assert(ShardPolicy<NoShard> && rules::PolicyRules<NoShard>::hold);

}  // namespace shardkit
