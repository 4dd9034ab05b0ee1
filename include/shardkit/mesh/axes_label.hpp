// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>

namespace shardkit {

/// Returns the axes along which ranks over `axes` differ, under the names that errors, logs and plans use. Axes of
/// extent 1 are left out. A data-parallel axis that is not split, or whose halves are both listed, is "dp". On
/// dp_replicate=1 dp_shard=4 cp=2, DataAxes are "dp" and "cp". Axes of experts keep their names.
constexpr AxisNames named_axes(const AxisGrid& grid, const AxisNames& axes,
                               SourceLocation where = SourceLocation::current()) {
    const bool split =
        grid.has(DpShard::name) && grid.extent(DpReplicate::name) > 1 && grid.extent(DpShard::name) > 1;
    const bool both = axes.contains(DpReplicate::name) && axes.contains(DpShard::name);
    AxisNames named;
    for (std::string_view name : axes) {
        if (grid.extent(name, where) == 1) { continue; }
        const bool half = name == DpReplicate::name || name == DpShard::name;
        if (half && (!split || both) && !grid.has(EpDp::name)) { name = Dp::name; }
        if (!named.contains(name)) { named.add(name); }
    }
    return named;
}

/// Returns the names in one line: "dp x cp"; "self" if there are none.
inline std::string joined(const AxisNames& names) {
    std::string text;
    for (const std::string_view name : names) {
        if (!text.empty()) { text += " x "; }
        text += name;
    }
    return text.empty() ? "self" : text;
}

/// Returns the name of a set of axes in errors, logs and plans; "self" for a group of one rank.
inline std::string axes_label(const AxisGrid& grid, const AxisNames& axes,
                              SourceLocation where = SourceLocation::current()) {
    return joined(named_axes(grid, axes, where));
}
template <class AxisSet>
std::string axes_label(const AxisGrid& grid, SourceLocation where = SourceLocation::current()) {
    return axes_label(grid, AxisSet{}, where);
}

}  // namespace shardkit
