// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

namespace shardkit {

namespace detail {
/// Returns a policy as it is or, with `slices`, with sums along a tree of that many.
template <class Policy>
DynamicPolicy in_slices(const Policy& policy, std::optional<Slices> slices, SourceLocation where) {
    if (!slices) { return DynamicPolicy(policy, where); }
    return DynamicPolicy(TreeSums<Policy>(*slices, policy), where);
}
}  // namespace detail

/// Returns the library's policy of a name, as a flag or a configuration file gives it: no_shard, shard_optimizer,
/// shard_grad_op, full_shard, or hybrid_shard:N, hybrid_optimizer:N or secondary_shard:N with the number of ranks of
/// a shard group. With `slices`, its sums are made along a tree of that many.
///     Sharded<Block, DynamicPolicy> block{rank, "blocks.0", {}, {named_policy(argv[1])}};
/// @throws std::invalid_argument for any other name, with what was given and what there is
inline DynamicPolicy named_policy(std::string_view name, std::optional<Slices> slices,
                                  SourceLocation where = SourceLocation::current()) {
    const auto made = [&](const auto& policy) { return detail::in_slices(policy, slices, where); };
    if (name == NoShard::name) { return made(NoShard{}); }
    if (name == ShardOptimizer::name) { return made(ShardOptimizer{}); }
    if (name == ShardGradOp::name) { return made(ShardGradOp{}); }
    if (name == FullShard::name) { return made(FullShard{}); }
    const std::size_t colon = name.find(':');
    std::size_t ranks = 0;
    if (colon != std::string_view::npos) {
        const char* const end = name.data() + name.size();
        const auto [stopped, error] = std::from_chars(name.data() + colon + 1, end, ranks);
        if (error != std::errc{} || stopped != end) { ranks = 0; }
    }
    if (ranks > 0) {
        const std::string_view kind = name.substr(0, colon);
        if (kind == HybridShard<dynamic>::name) { return made(HybridShard<dynamic>{ranks}); }
        if (kind == HybridOptimizer<dynamic>::name) { return made(HybridOptimizer<dynamic>{ranks}); }
        if (kind == SecondaryShard<dynamic>::name) { return made(SecondaryShard<dynamic>{ranks}); }
    }
    throw_invalid_argument(where, "named_policy: no policy is called '", name,
                           "'; expected no_shard, shard_optimizer, shard_grad_op, full_shard, or hybrid_shard:N, "
                           "hybrid_optimizer:N or secondary_shard:N for shard groups of N ranks, at least 1");
}
/// Returns that policy with sums in rank order.
inline DynamicPolicy named_policy(std::string_view name, SourceLocation where = SourceLocation::current()) {
    return named_policy(name, std::nullopt, where);
}

}  // namespace shardkit
