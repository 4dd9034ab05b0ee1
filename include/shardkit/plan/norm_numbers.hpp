// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <shardkit/plan/group_description.hpp>

namespace shardkit::detail {

/// Totals of global norms that a rank keeps in its engine's memory at a time; they take turns.
inline constexpr std::size_t norm_slots = 16;

/// The doubles of global norms over groups that are cut into `shards` at most: what a rank keeps and what it sends.
struct NormNumbers {
    std::size_t shards = 1;

    /// Travel over the world: sum of squares and non-finite count of each shard.
    constexpr std::size_t partials() const noexcept { return 2 * shards; }
    /// What one norm works in: the scale of the gradients, and behind it the partial sums.
    constexpr std::size_t scratch() const noexcept { return 1 + partials(); }
    /// Two for each of the totals that are kept.
    static constexpr std::size_t totals() noexcept { return 2 * norm_slots; }
};
/// Those of a model's norms.
constexpr NormNumbers norm_numbers(std::span<const GroupDescription> groups) noexcept {
    NormNumbers norm;
    for (const GroupDescription& group : groups) { norm.shards = std::max(norm.shards, group.shards); }
    return norm;
}

}  // namespace shardkit::detail
