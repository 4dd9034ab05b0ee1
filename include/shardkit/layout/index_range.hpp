// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// The elements [begin, end).
struct IndexRange {
    std::size_t begin = 0;
    std::size_t end = 0;

    constexpr std::size_t size() const noexcept { return end - begin; }
    constexpr bool empty() const noexcept { return begin == end; }
    friend constexpr bool operator==(IndexRange, IndexRange) noexcept = default;
};

/// Returns the elements in both ranges; empty (and inside `a`) when there are none.
/// @post x is in the result exactly when x is in a and in b
constexpr IndexRange intersect(IndexRange a, IndexRange b) noexcept {
    const auto within = [&](std::size_t i) { return i < a.begin ? a.begin : i > a.end ? a.end : i; };
    return {within(b.begin), within(b.end)};
}

/// Returns the same elements counted from `origin` on.
/// @pre origin <= range.begin
constexpr IndexRange relative_to(IndexRange range, std::size_t origin) noexcept {
    return {range.begin - origin, range.end - origin};
}

}  // namespace shardkit
