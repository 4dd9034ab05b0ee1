// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardkit::gpu {

/// The first of `count` sorted, disjoint ranges that ends after `position`; `count` when none does.
/// Cost:  ceil(log2(count + 1)) reads, the same for the threads of a warp where ranges are long.
template <class Range>
constexpr std::size_t first_ending_after(const Range* ranges, std::size_t count, std::uint64_t position) {
    std::size_t low = 0;
    std::size_t high = count;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace shardkit::gpu
