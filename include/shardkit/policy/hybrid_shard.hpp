// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/full_shard.hpp>

namespace shardkit {

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
        : ranks_per_group_(ranks_per_group) {
        if (ranks_per_group == 0) {
            throw_invalid_argument(where, "HybridShard: group of 0 ranks, expected at least 1");
        }
    }
    constexpr std::size_t shard_group(std::size_t /*dp*/) const noexcept { return ranks_per_group_; }

  private:
    std::size_t ranks_per_group_ = 1;
};

static_assert(ShardPolicy<HybridShard<2>> && rules::PolicyRules<HybridShard<2>>::hold);
static_assert(ShardPolicy<HybridShard<dynamic>> && rules::PolicyRules<HybridShard<dynamic>>::hold);

}  // namespace shardkit
