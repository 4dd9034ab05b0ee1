// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <shardkit/plan/group_description.hpp>

namespace shardkit::detail {

/// The number of global norms whose totals a rank keeps in its engine's memory at a time; later norms reuse them in
/// turn.
inline constexpr std::size_t norm_slots = 16;

/// The numbers (doubles) of global norms over groups with at most `shards` shards: how many a rank keeps and sends.
struct NormNumbers {
    std::size_t shards = 1;

    /// Returns the numbers that a norm sends over the world: sum of squares and non-finite count of each shard.
    constexpr std::size_t partials() const noexcept { return 2 * shards; }
    /// Returns the numbers of one norm's scratch buffer: the scale of the gradients, then the partial sums.
    constexpr std::size_t scratch() const noexcept { return 1 + partials(); }
    /// Returns the numbers of all kept totals, two for each.
    static constexpr std::size_t totals() noexcept { return 2 * norm_slots; }
};
/// Returns the numbers of a model's norms.
constexpr NormNumbers norm_numbers(std::span<const GroupDescription> groups) noexcept {
    NormNumbers norm;
    for (const GroupDescription& group : groups) { norm.shards = std::max(norm.shards, group.shards); }
    return norm;
}

}  // namespace shardkit::detail
