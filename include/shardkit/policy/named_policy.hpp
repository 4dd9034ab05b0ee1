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
/// shard_grad_op, full_shard, or hybrid_shard:N with the number of ranks that share one copy. With `slices`, its sums
/// are made along a tree of that many.
///     Sharded<Block, DynamicPolicy, Engine> block{rank, "blocks.0", {}, {named_policy(argv[1])}};
/// @throws std::invalid_argument for any other name, with what was given and what there is
inline DynamicPolicy named_policy(std::string_view name, std::optional<Slices> slices,
                                  SourceLocation where = SourceLocation::current()) {
    constexpr std::string_view hybrid = "hybrid_shard:";
    if (name == NoShard::name) { return detail::in_slices(NoShard{}, slices, where); }
    if (name == ShardOptimizer::name) { return detail::in_slices(ShardOptimizer{}, slices, where); }
    if (name == ShardGradOp::name) { return detail::in_slices(ShardGradOp{}, slices, where); }
    if (name == FullShard::name) { return detail::in_slices(FullShard{}, slices, where); }
    if (name.starts_with(hybrid)) {
        const char* const end = name.data() + name.size();
        std::size_t ranks = 0;
        const auto [stopped, error] = std::from_chars(name.data() + hybrid.size(), end, ranks);
        if (error == std::errc{} && stopped == end && ranks > 0) {
            return detail::in_slices(HybridShard<dynamic>{ranks}, slices, where);
        }
    }
    throw_invalid_argument(where, "named_policy: no policy is called '", name,
                           "'; expected no_shard, shard_optimizer, shard_grad_op, full_shard, or hybrid_shard:N for "
                           "N ranks, at least 1, that share one copy");
}
/// Returns that policy with sums in rank order.
inline DynamicPolicy named_policy(std::string_view name, SourceLocation where = SourceLocation::current()) {
    return named_policy(name, std::nullopt, where);
}

}  // namespace shardkit
