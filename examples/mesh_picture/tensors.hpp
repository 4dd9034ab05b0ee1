// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/layout/boxes.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>

#include "svg.hpp"

namespace mesh_picture {

/// Pixels of one element; a vector is a row, and thick enough to be seen.
struct Unit {
    double x = 2;
    double y = 2;
};
inline Unit unit_of(const shardkit::TensorShape& shape) { return shape.rank == 1 ? Unit{2, 8} : Unit{}; }

/// Where elements [offset, offset + extent) of a tensor lie that is drawn at (x, y).
inline Rectangle place(double x, double y, const shardkit::TensorShape& shape, const shardkit::layout::Box& box) {
    const auto pixels = [](std::size_t n, double unit) { return static_cast<double>(n) * unit; };
    const Unit unit = unit_of(shape);
    if (shape.rank == 1) { return {x + pixels(box.offsets[0], unit.x), y, pixels(box.extents[0], unit.x), unit.y}; }
    return {x + pixels(box.offsets[1], unit.x), y + pixels(box.offsets[0], unit.y), pixels(box.extents[1], unit.x),
            pixels(box.extents[0], unit.y)};
}
inline Rectangle place(double x, double y, const shardkit::TensorShape& shape) {
    return place(x, y, shape, shardkit::layout::Box{shape.rank, {}, shape.extents, {}});
}
inline Rectangle place(double x, double y, const shardkit::TensorShape& shape, const shardkit::TensorPart& part) {
    shardkit::layout::Box box{shape.rank, {}, part.shape().extents, {}};
    box.offsets[part.dimension()] = part.first();
    box.offsets[0] += part.first_row();  // of its stack of experts
    return place(x, y, shape, box);
}

/// "72x24"
inline std::string shape_text(const shardkit::TensorShape& shape) {
    std::string text;
    for (std::size_t d = 0; d < shape.rank; ++d) { text += (d == 0 ? "" : "x") + std::to_string(shape.extents[d]); }
    return text;
}

}  // namespace mesh_picture
