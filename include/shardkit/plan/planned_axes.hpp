// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/comm/moved.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axes_label.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/policy/split_mesh.hpp>

namespace shardkit {

/// Which ranks a planned collective joins: axes as `named_axes` names them, which is how a rank's traffic log does.
struct PlannedAxes {
    AxisNames names;
    std::size_t shard_group = 0;  ///< where the names are of a split dp: the extent of dp_shard

    /// Axes of the mesh itself: PlannedAxes::of(mesh, Axes<Tp>{}).
    static constexpr PlannedAxes of(const AxisGrid& mesh, const AxisNames& axes) {
        return {named_axes(mesh, axes), 0};
    }
    /// Those of a group's communicator.
    static constexpr PlannedAxes of(detail::Over over, const PolicyValues& policy, const AxisGrid& split) {
        const AxisNames names = named_axes(split, detail::axes_of(over, policy));
        const bool halved = names.contains(DpReplicate::name) || names.contains(DpShard::name);
        return {names, halved ? policy.shard_group : 0};
    }
    /// Every rank: the global norm.
    static constexpr PlannedAxes world() {
        PlannedAxes all;
        all.names.add("world");
        return all;
    }
    constexpr bool is_world() const noexcept { return names.contains("world"); }
    std::string label() const { return joined(names); }

    /// The mesh with the axes that the names are of.
    constexpr AxisGrid grid(const AxisGrid& mesh) const {
        return shard_group == 0 ? mesh : mesh.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name);
    }
    /// The ranks that meet this one.
    constexpr RankGroup group(const AxisGrid& mesh, std::size_t rank) const {
        return grid(mesh).group(names.span(), rank);
    }

    friend constexpr bool operator==(const PlannedAxes&, const PlannedAxes&) noexcept = default;
};

namespace detail {

/// That of all ranks of a mesh, for collectives over these axes.
constexpr HostSpread host_spread(const PlannedAxes& axes, const AxisGrid& mesh, std::size_t ranks_per_host) {
    HostSpread spread{.ranks = mesh.size()};
    if (ranks_per_host == 0) { return spread; }
    if (axes.is_world()) {
        spread.add_group(mesh.size(), [&](std::size_t i) { return i / ranks_per_host; });
        return spread;
    }
    const AxisGrid grid = axes.grid(mesh);
    AxisNames ascending;  // so that members are, too
    for (std::size_t a = 0; a < grid.axis_count(); ++a) {
        if (axes.names.contains(grid.axis(a).name)) { ascending.add(grid.axis(a).name); }
    }
    for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
        const RankGroup group = grid.group(ascending.span(), rank);
        if (group.index() > 0) { continue; }
        spread.add_group(group.size(), [&](std::size_t i) { return group.member(i) / ranks_per_host; });
    }
    return spread;
}

}  // namespace detail

}  // namespace shardkit
