// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/layout/flat_layout.hpp>

namespace shardkit {

/// A run of elements of one parameter; `flat` counts in the group's buffer. Padding is in no segment.
struct Segment {
    std::size_t parameter = 0;
    IndexRange flat;
};

/// Calls f(segment) for every parameter that has elements in `range` of the group's buffer, in order.
/// @post the segments cover exactly the elements of `range` that are no padding
template <std::size_t N, class F>
constexpr void for_each_segment(const FlatLayout<N>& layout, IndexRange range, F&& f) {
    for (std::size_t i = 0; i < N; ++i) {
        const IndexRange common = intersect(layout.range(i), range);
        if (!common.empty()) { f(Segment{i, common}); }
    }
}

}  // namespace shardkit
