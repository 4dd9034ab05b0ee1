// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/plan/moved_bytes.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::planner {

/// The ranks that join a planned collective: axes with the names that `named_axes` and a rank's traffic log give
/// them.
struct PlannedAxes {
    AxisNames names;
    std::size_t shard_group = 0;  ///< extent of dp_shard where the names are axes of a split dp, else 0
    bool experts = false;         ///< the names are axes of the mesh that groups of experts see

    /// Returns axes of the mesh itself: PlannedAxes::of(mesh, Axes<Tp>{}).
    static constexpr PlannedAxes of(const AxisGrid& mesh, const AxisNames& axes) {
        return {named_axes(mesh, axes), 0};
    }
    /// Returns axes of a mesh that a group's policy has split.
    static constexpr PlannedAxes of_split(const AxisGrid& split, const AxisNames& axes,
                                          const rules::PolicyValues& policy) {
        const AxisNames names = named_axes(split, axes);
        const bool halved = names.contains(DpReplicate::name) || names.contains(DpShard::name) ||
                            names.contains(EpDp::name) || names.contains(Ep::name);
        return {names, halved ? policy.shard_group : 0, halved && split.has(EpDp::name)};
    }
    /// Returns the axes of all ranks, as the global norm uses them.
    static constexpr PlannedAxes world() {
        PlannedAxes all;
        all.names.add("world");
        return all;
    }
    constexpr bool is_world() const noexcept { return names.contains("world"); }
    std::string label() const { return joined(names); }

    /// Returns the mesh, with dp split where the names need it.
    constexpr AxisGrid grid(const AxisGrid& mesh) const {
        if (experts) { return mesh.split_experts(shard_group); }
        return shard_group == 0 ? mesh : mesh.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name);
    }
    /// Returns the ranks that communicate with `rank`.
    constexpr RankGroup group(const AxisGrid& mesh, std::size_t rank) const {
        return grid(mesh).group(names.span(), rank);
    }

    friend constexpr bool operator==(const PlannedAxes&, const PlannedAxes&) noexcept = default;
};

}  // namespace shardkit::planner

namespace shardkit::detail {

/// Returns how the collectives over these axes spread over hosts, for all ranks of a mesh.
constexpr HostSpread host_spread(const planner::PlannedAxes& axes, const AxisGrid& mesh, std::size_t ranks_per_host) {
    HostSpread spread{.ranks = mesh.size()};
    if (ranks_per_host == 0) { return spread; }
    if (axes.is_world()) {
        spread.add_group(mesh.size(), [&](std::size_t i) { return i / ranks_per_host; });
        return spread;
    }
    const AxisGrid grid = axes.grid(mesh);
    AxisNames ascending;  // so that members ascend, too
    for (std::size_t a = 0; a < grid.axis_count(); ++a) {
        const std::string_view name = grid.axis(a).name;
        if (axes.names.contains(name) && !ascending.contains(name)) { ascending.add(name); }
    }
    for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
        const RankGroup group = grid.group(ascending.span(), rank);
        if (group.index() > 0) { continue; }
        spread.add_group(group.size(), [&](std::size_t i) { return group.member(i) / ranks_per_host; });
    }
    return spread;
}

}  // namespace shardkit::detail
