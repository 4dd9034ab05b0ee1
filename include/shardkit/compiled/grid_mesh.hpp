// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/source_location.hpp>
#include <shardkit/mesh/axis_grid.hpp>

namespace shardkit::compiled {

/// A mesh whose extents were types in a trainer's file.
struct GridMesh {
    AxisGrid axes;

    const AxisGrid& grid(SourceLocation /*where*/ = {}) const noexcept { return axes; }
    std::size_t size() const noexcept { return axes.size(); }
};

}  // namespace shardkit::compiled
