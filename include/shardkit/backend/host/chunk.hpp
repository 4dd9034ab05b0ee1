// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace shardkit::host::detail {

/// A range of elements.
struct Chunk {
    std::size_t begin = 0;
    std::size_t end = 0;
    constexpr std::size_t size() const noexcept { return end - begin; }
};

/// The part of `count` elements that rank `rank` of `ranks` works on: consecutive, in rank order, cut at multiples of
/// 128 bytes so that two ranks do not write the same cache lines, and as equal as that allows.
/// @post the chunks of all ranks are disjoint and cover [0, count)
constexpr Chunk chunk_of(std::size_t count, std::size_t element_size, std::size_t rank, std::size_t ranks) noexcept {
    const std::size_t unit = std::max<std::size_t>(1, 128 / element_size);
    const std::size_t units = count / unit + (count % unit != 0 ? 1 : 0);
    const std::size_t each = units / ranks;
    const std::size_t longer = units % ranks;  // the first so many ranks have one more
    const std::size_t first = rank * each + std::min(rank, longer);
    const std::size_t last = first + each + (rank < longer ? 1 : 0);
    return {std::min(count, first * unit), std::min(count, last * unit)};
}

}  // namespace shardkit::host::detail
