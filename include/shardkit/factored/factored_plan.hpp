// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/plan/planned_axes.hpp>
#include <shardkit/plan/planned_geometry.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::planner {

/// What the passes of a FactoredRule's optimizer add to the plan of a step.
struct FactoredPlan {
    ByteCount kept;        ///< states of another shape than their parameters, on every rank
    ByteCount sums;        ///< of all passes, on every rank
    ByteCount directions;  ///< of the largest group
    TrafficPlan traffic;   ///< of each rank

    constexpr ByteCount bytes() const noexcept { return kept + sums + directions; }
};

/// Plans the passes of an optimizer of a FactoredRule in arithmetic A over groups that need not exist, on any
/// machine.
///     FactoredPlanner<rules::AdafactorRule, float> planner{mesh.grid()};
///     planner.add<Block, FullShard>("blocks.0", shapes);
///     const FactoredPlan plan = planner.plan();
template <rules::FactoredRule Rule, std::floating_point A>
class FactoredPlanner {
  public:
    /// @param options  for the engine and the ranks of a host
    explicit FactoredPlanner(const AxisGrid& mesh, const PlanOptions& options = {})
        : mesh_(mesh), options_(options) {}

    /// Adds the group that Sharded<ParamOrGroup, Policy, ..., Precision> with these options would make.
    /// @throws std::invalid_argument as describe_group
    template <class ParamOrGroup, ShardPolicy Policy,
              class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
    void add(std::string_view path, const TensorsOf<ParamOrGroup>& tensors = {},
             const ShardedOptions<GroupOf<ParamOrGroup>, Policy>& options = {},
             SourceLocation where = SourceLocation::current()) {
        detail::GroupGeometry group;
        detail::plan_geometry<ParamOrGroup, Policy, Precision>(group, path, tensors, options, mesh_, where);
        bool any = false;
        for (const PlacedParameter& p : group.parameters) {
            if (!group.trainable || p.frozen) { continue; }
            any = true;
            const rules::FactoredExtents extents(p.shape);
            kept_ += detail::kept_of<Rule>(extents);
            for (std::size_t pass = 0; pass < sums_.size(); ++pass) {
                sums_[pass] += detail::sums_in<Rule>(pass, extents);
            }
        }
        if (any) { largest_ = std::max(largest_, group.numel_of(group.table.updated)); }
    }

    /// Returns the plan of all groups together.
    /// @post the bytes are what a FactoredOptimizer's bytes_of_passes says on the rank with most
    FactoredPlan plan() const {
        FactoredPlan plan;
        plan.kept = ByteCount(kept_ * sizeof(A));
        plan.directions = ByteCount(largest_ * sizeof(A));
        for (const std::size_t sums : sums_) {
            const std::size_t bytes = sums * sizeof(double);
            plan.sums += ByteCount(bytes);
            if (mesh_.size() == 1 || bytes == 0) { continue; }
            const auto world = PlannedAxes::world();
            const auto& engine = options_.engine;
            plan.traffic.add(Verb::all_reduce, world, 1, bytes,
                             detail::all_reduce_moved(bytes, bytes, mesh_.size(),
                                                      engine.of_sum(ReduceOp::sum, bytes, sizeof(double)),
                                                      detail::host_spread(world, mesh_, options_.ranks_per_host)));
        }
        return plan;
    }

  private:
    AxisGrid mesh_;
    PlanOptions options_;
    std::size_t kept_ = 0;
    std::array<std::size_t, detail::passes_of<Rule>> sums_{};
    std::size_t largest_ = 0;
};

}  // namespace shardkit::planner
