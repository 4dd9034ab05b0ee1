// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>

namespace shardkit {

/// How a set of axes is named in errors, logs and plans: axes of extent 1 are left out, and a data-parallel
/// axis that is not split is just "dp". On dp_replicate=1 dp_shard=4 cp=2, Axes<DpReplicate, DpShard, Cp> is
/// "dp x cp"; a set without ranks beside this one is "self".
template <class AxisSet>
std::string axes_label(const AxisGrid& grid) {
    const bool split =
        grid.has(DpReplicate::name) && grid.extent(DpReplicate::name) > 1 && grid.extent(DpShard::name) > 1;
    const bool both = AxisSet::template contains<DpReplicate> && AxisSet::template contains<DpShard>;
    std::string label;
    bool dp_named = false;
    for (std::string_view name : AxisSet::names) {
        if (grid.extent(name) == 1) { continue; }
        if (name == DpReplicate::name || name == DpShard::name) {
            if (!split || both) { name = Dp::name; }
            if (name == Dp::name && dp_named) { continue; }
            dp_named = true;
        }
        if (!label.empty()) { label += " x "; }
        label += name;
    }
    return label.empty() ? "self" : label;
}

}  // namespace shardkit
