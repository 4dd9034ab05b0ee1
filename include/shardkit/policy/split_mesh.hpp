// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// Returns the mesh as the group at `path` uses it: dp is split into dp_replicate and dp_shard, the ranks that share
/// a copy.
/// @throws std::invalid_argument when the policy's shard group does not divide dp
constexpr AxisGrid split_mesh(const AxisGrid& mesh, const rules::PolicyValues& policy, std::string_view path,
                              SourceLocation where) {
    const std::size_t dp = mesh.extent(Dp::name);
    if (policy.shard_group == 0 || dp % policy.shard_group != 0) {
        throw_invalid_argument(where, "'", path, "': policy ", policy.name, " with shard groups of ",
                               policy.shard_group, " does not divide dp = ", dp);
    }
    return mesh.split_axis(Dp::name, policy.shard_group, DpReplicate::name, DpShard::name, where);
}

/// Returns the number of ranks that join a group's collectives over `over`. `split` is a result of split_mesh.
constexpr std::size_t ranks_over(Over over, const rules::PolicyValues& policy, const AxisGrid& split) {
    std::size_t ranks = 1;
    for (const std::string_view name : axes_of(over, policy)) { ranks *= split.extent(name); }
    return ranks;
}

}  // namespace shardkit::detail
