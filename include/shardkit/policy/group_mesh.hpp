// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// The ranks of a mesh as one group of parameters sees them: dp split as its policy says, or dp and cp as ranks share
/// experts. The one place that says which ranks are a group's data ranks. Communicators, labels, numbers of ranks,
/// plans, the time model and checks of replicas all use it.
class GroupMesh {
  public:
    /// @throws std::invalid_argument when the policy's shard group does not divide dp, or ep its data ranks
    constexpr GroupMesh(const AxisGrid& mesh, const rules::PolicyValues& policy, bool experts, std::string_view path,
                        SourceLocation where)
        : grid_(split(mesh, policy, experts, path, where)),
          shards_(experts ? AxisNames(Axes<EpDp>{}) : policy.shard_axes),
          data_(experts ? AxisNames(ExpertDataAxes{}) : AxisNames(DataAxes{})) {}

    /// Returns the mesh with its axes split.
    constexpr const AxisGrid& grid() const noexcept { return grid_; }
    /// Returns the axes along which these ranks differ.
    constexpr AxisNames axes(Over over) const {
        return over == Over::shards     ? shards_
               : over == Over::replicas ? data_.without(shards_)
               : over == Over::data     ? data_
                                        : Axes<Tp>{};
    }
    /// Returns the data axes along which ranks hold the same elements in buffers of that extent.
    constexpr AxisNames copies(Extent extent) const {
        if (extent == Extent::piece) { return {}; }
        return axes(extent == Extent::shard ? Over::replicas : Over::data);
    }
    /// Returns the number of ranks that join a group's collectives over `over`.
    constexpr std::size_t ranks(Over over) const {
        std::size_t ranks = 1;
        for (const std::string_view name : axes(over)) { ranks *= grid_.extent(name); }
        return ranks;
    }
    /// Returns the number of ranks that share its experts; 1 for a group of other parameters.
    constexpr std::size_t ep() const { return grid_.has(Ep::name) ? grid_.extent(Ep::name) : 1; }

  private:
    static constexpr AxisGrid split(const AxisGrid& mesh, const rules::PolicyValues& policy, bool experts,
                                    std::string_view path, SourceLocation where) {
        const std::size_t dp = mesh.extent(Dp::name);
        require_argument(policy.shard_group != 0 && dp % policy.shard_group == 0, where, "'", path, "': policy ",
                         policy.name, " with shard groups of ", policy.shard_group, " does not divide dp = ", dp);
        if (!experts) {
            return mesh.split_axis(Dp::name, policy.shard_group, DpReplicate::name, DpShard::name, where);
        }
        require_argument(policy.shard_group * mesh.extent(Cp::name) % mesh.experts() == 0, where, "'", path,
                         "': policy ", policy.name, " with shard groups of ", policy.shard_group, " of dp = ", dp,
                         " x cp = ", mesh.extent(Cp::name), ", whose ranks ep = ", mesh.experts(),
                         " does not divide");
        return mesh.split_experts(policy.shard_group, where);
    }

    AxisGrid grid_;
    AxisNames shards_;
    AxisNames data_;
};

}  // namespace shardkit::detail
