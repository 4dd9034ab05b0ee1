// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>

namespace shardkit::detail {

/// A run of elements of one parameter; `flat` counts in the group's buffer. Padding is in no segment.
struct Segment {
    std::size_t parameter = 0;
    IndexRange flat;
};

/// Calls f(segment) for every parameter that has elements in `range` of the group's buffer, in order.
/// @post the segments cover exactly the elements of `range` that are no padding
template <class F>
constexpr void for_each_segment(std::span<const PlacedParameter> parameters, IndexRange range, F&& f) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const IndexRange common = intersect(parameters[i].range, range);
        if (!common.empty()) { f(Segment{i, common}); }
    }
}

}  // namespace shardkit::detail
