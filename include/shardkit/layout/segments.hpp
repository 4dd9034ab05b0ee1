// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>

namespace shardkit::detail {

/// A run of elements of one parameter; `flat` is its range in the group's buffer. Padding is in no segment.
struct Segment {
    std::size_t parameter = 0;
    IndexRange flat;
};

/// Calls f(segment) for every parameter with elements in `range` of the group's buffer, in order.
/// @post the segments cover exactly the elements of `range` that are not padding
template <class F>
constexpr void for_each_segment(std::span<const PlacedParameter> parameters, IndexRange range, F&& f) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const IndexRange common = intersect(parameters[i].range, range);
        if (!common.empty()) { f(detail::Segment{i, common}); }
    }
}

/// Appends `range` to `ranges`, merged with the last one if it is adjacent to it and `alike`.
/// @pre `range` begins at or behind the end of the last one
template <class Ranges, class Range>
void append_merged(Ranges& ranges, const Range& range, bool alike) {
    if (alike && !ranges.empty() && ranges.back().end == range.begin) {
        ranges.back().end = range.end;
    } else {
        ranges.push_back(range);
    }
}

}  // namespace shardkit::detail
