// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/layout/index_range.hpp>

namespace shardkit::detail {

/// Rounds `n` up to a multiple.
/// @pre multiple > 0, the result fits   @post the smallest multiple of `multiple` that is at least n
constexpr std::size_t round_up(std::size_t n, std::size_t multiple) noexcept {
    return n / multiple * multiple + (n % multiple == 0 ? 0 : multiple);
}

/// Divides `n` by `divisor` and rounds up.
/// @pre divisor > 0   @post the smallest q with q * divisor >= n
constexpr std::size_t divide_up(std::size_t n, std::size_t divisor) noexcept {
    return n / divisor + (n % divisor == 0 ? 0 : 1);
}

/// Returns the elements of every shard when `total` elements are split into `shards` equal aligned pieces.
/// @pre shards > 0, alignment > 0
/// @post a multiple of alignment; shards times it holds total; one alignment less would not hold it
constexpr std::size_t shard_numel(std::size_t total, std::size_t shards, std::size_t alignment) noexcept {
    return round_up(divide_up(total, shards), alignment);
}

/// Returns shard `index` of a buffer of `buffer_numel` elements split into pieces of `numel`. It is clipped to the
/// buffer, so that the last shards may be short or empty.
/// @post over all indices the ranges are disjoint, in order, and cover the buffer
constexpr IndexRange shard_range(std::size_t index, std::size_t numel, std::size_t buffer_numel) noexcept {
    const std::size_t full_shards = numel == 0 ? 0 : buffer_numel / numel;
    const std::size_t begin = index <= full_shards ? index * numel : buffer_numel;
    const std::size_t end = index < full_shards ? begin + numel : buffer_numel;
    return {begin, end};
}

}  // namespace shardkit::detail
