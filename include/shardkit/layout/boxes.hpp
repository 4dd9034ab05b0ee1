// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit::layout {

/// A rectangular piece of a tensor: `extents` elements along each dimension, from `offsets` on. Its elements are
/// `range` of the tensor's row-major order.
struct Box {
    std::size_t rank = 0;
    std::array<std::size_t, TensorShape::max_rank> offsets{};
    std::array<std::size_t, TensorShape::max_rank> extents{};
    IndexRange range;
};

/// Splits elements `range` of a row-major tensor into boxes, and calls f(box) for each in order: an incomplete first
/// row, whole rows, an incomplete last row, and likewise in the inner dimensions.
/// @pre range lies inside the tensor
/// @post the boxes' ranges are adjacent and cover `range`; at most 2 * rank - 1 boxes (one for a scalar)
template <class F>
constexpr void for_each_box(const TensorShape& shape, IndexRange range, F&& f) {
    while (!range.empty()) {
        Box box;
        box.rank = shape.rank;
        std::size_t stride = shape.numel();
        std::size_t taken = 1;
        bool found = false;
        for (std::size_t d = 0; d < shape.rank; ++d) {
            stride /= shape.extents[d];
            const std::size_t coordinate = range.begin / stride % shape.extents[d];
            box.offsets[d] = coordinate;
            if (found) {
                box.extents[d] = shape.extents[d];
            } else if (range.begin % stride == 0 && range.size() >= stride) {
                box.extents[d] = std::min(shape.extents[d] - coordinate, range.size() / stride);
                taken = box.extents[d] * stride;
                found = true;
            } else {
                box.extents[d] = 1;
            }
        }
        box.range = {range.begin, range.begin + taken};
        f(box);
        range.begin += taken;
    }
}

}  // namespace shardkit::layout
