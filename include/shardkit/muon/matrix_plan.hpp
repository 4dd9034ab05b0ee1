// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/muon/matrix_placement.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/plan/planned_axes.hpp>
#include <shardkit/plan/planned_geometry.hpp>
#include <shardkit/plan/traffic_plan.hpp>

namespace shardkit::planner {

/// One matrix of a model, and the rank that owns it.
struct PlannedMatrix {
    std::string name;  ///< "blocks.3.up_weight", with "[tp 1]" for a part of one
    rules::MatrixExtents extents;
    std::uint64_t cost = 0;
    std::size_t owner = 0;
};

/// One batch of matrices, which travel together.
struct PlannedBatch {
    std::uint64_t cost = 0;    ///< of the rank whose matrices of it cost most
    std::size_t elements = 0;  ///< of the rank that updates most of it
    TrafficPlan to_owners;     ///< as means over ranks
    TrafficPlan from_owners;   ///< and to ranks that hold copies
};

/// What an optimizer of whole matrices adds to the plan of a step: memory, traffic, and who owns what.
struct MatrixPlan {
    ByteCount slots;  ///< that matrices travel through, on every rank
    ByteCount works;  ///< what the rank with most of it holds beside: a matrix, what the rule works in and keeps
    std::vector<PlannedMatrix> matrices;
    std::vector<std::uint64_t> loads;   ///< the cost of what each rank owns
    std::vector<PlannedBatch> batches;  ///< of a step, by the numbers that its schedule has
    TrafficPlan traffic;                ///< of all of them, as means over ranks

    ByteCount bytes() const noexcept { return slots + works; }
    /// Returns the work of the busiest rank as a multiple of an equal share, at least 1; 1 without work.
    double imbalance() const noexcept {
        double total = 0;
        double most = 0;
        for (const std::uint64_t load : loads) {
            total += static_cast<double>(load);
            most = std::max(most, static_cast<double>(load));
        }
        return total > 0 ? most * static_cast<double>(loads.size()) / total : 1;
    }
};

/// Plans an optimizer of a MatrixRule in arithmetic A over groups that need not exist: arithmetic only, for meshes of
/// any size on any machine. It takes the groups in the model's order.
///     MatrixPlanner<MuonRule, float> planner{mesh.grid()};
///     planner.add<Block, FullShard>("blocks.0", shapes);
///     const MatrixPlan plan = planner.plan();
template <rules::MatrixRule Rule, std::floating_point A>
class MatrixPlanner {
  public:
    explicit MatrixPlanner(const AxisGrid& mesh, Matrices matrices = {}, std::size_t ranks_per_host = 0)
        : mesh_(mesh), matrices_(std::move(matrices)), ranks_per_host_(ranks_per_host) {}

    /// Adds the group that Sharded<ParamOrGroup, Policy, ..., Precision> with these options would make.
    /// @throws std::invalid_argument as describe_group, and as MatrixOptimizer
    template <class ParamOrGroup, ShardPolicy Policy,
              class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
    void add(std::string_view path, const TensorsOf<ParamOrGroup>& tensors,
             const ShardedOptions<GroupOf<ParamOrGroup>, Policy>& options = {},
             SourceLocation where = SourceLocation::current()) {
        detail::GroupGeometry& group = groups_.emplace_back();
        detail::plan_geometry<ParamOrGroup, Policy, Precision>(group, path, tensors, options, mesh_, where);
        detail::add_units(
            group, holders_.size(), detail::matrix_sizes<Rule, A>, matrices_,
            [&](std::size_t number) {
                const PlacedParameter& p = group.parameters[number];
                return detail::is_matrix(matrices_, path, p) && group.trainable && !p.frozen;
            },
            units_, where);
        holders_.emplace_back(group, mesh_);
    }

    /// Returns the plan of all groups together.
    /// @post the bytes are what a MatrixOptimizer's bytes_of_exchange says on the rank with most
    MatrixPlan plan() const {
        const detail::MatrixPlacement placement(mesh_, holders_, units_);
        MatrixPlan plan;
        plan.loads.assign(placement.loads().begin(), placement.loads().end());
        for (std::size_t rank = 0; rank < mesh_.size(); ++rank) {
            const auto memory = detail::matrix_memory(detail::matrix_sizes<Rule, A>, placement, rank);
            plan.slots = ByteCount(memory.slots() * sizeof(A));
            plan.works = std::max(plan.works, ByteCount(memory.works() * sizeof(A)));
        }
        for (const detail::MatrixUnit& unit : placement.units()) {
            const std::string part = unit.tp == detail::MatrixUnit::all ? "" : detail::concat("[tp ", unit.tp, "]");
            plan.matrices.push_back(
                {detail::concat(placement.holders(unit).group().path, ".", placement.parameter(unit).name, part),
                 unit.extents, unit.cost, unit.owner});
        }
        for (std::size_t b = 0; b < placement.batches(); ++b) {
            const PlannedBatch& batch = plan.batches.emplace_back(plan_batch(placement, b));
            plan.traffic += batch.to_owners;
            plan.traffic += batch.from_owners;
        }
        return plan;
    }

  private:
    std::size_t host_of(std::size_t rank) const noexcept { return ranks_per_host_ != 0 ? rank / ranks_per_host_ : 0; }

    PlannedBatch plan_batch(const detail::MatrixPlacement& placement, std::size_t number) const {
        const std::size_t ranks = mesh_.size();
        PlannedBatch plan;
        detail::List<detail::MatrixBatch> batches;
        std::vector<std::uint64_t> costs(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            batches.push_back(placement.batch_of(number, rank));
            plan.elements = std::max(plan.elements, batches.back().pieces_numel);
        }
        for (const std::size_t u : batches.front().units) {
            costs[placement.units()[u].owner] += placement.units()[u].cost;
        }
        plan.cost = *std::max_element(costs.begin(), costs.end());
        if (ranks == 1) { return plan; }
        plan.to_owners.add_uneven(
            PlannedAxes::world(), 1, ranks,
            [&](std::size_t from, std::size_t to) { return batches[from].sent[to] * sizeof(A); },
            [&](std::size_t rank) { return host_of(rank); });
        plan.from_owners = plan.to_owners;  // the same bytes the other way
        TrafficPlan copies;                 // what broadcasts bring to all ranks
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            for (const detail::MatrixPiece& piece : batches[rank].pieces) {
                const detail::MatrixUnit& unit = placement.units()[piece.unit];
                const auto& holders = placement.holders(unit);
                const AxisNames names = holders.copies(placement.parameter(unit));
                const RankGroup group = holders.split().group(names.span(), rank);
                if (group.size() == 1) { continue; }
                const std::size_t root = group.member(placement.root(unit, group));
                const std::uint64_t bytes = piece.elements.size() * sizeof(A);
                copies.add(Verb::broadcast, PlannedAxes::of_split(holders.split(), names, holders.group().policy), 1,
                           bytes, {root != rank ? bytes : 0, host_of(root) != host_of(rank) ? bytes : 0});
            }
        }
        const auto value = [](ByteCount bytes) { return static_cast<double>(bytes.value); };
        for (const auto& [verb, axes, all] : copies.rows()) {
            plan.from_owners.add_mean(verb,
                                      {axes, static_cast<double>(all.calls), value(all.payload), value(all.moved),
                                       value(all.between_hosts)},
                                      static_cast<double>(ranks));
        }
        return plan;
    }

    AxisGrid mesh_;
    Matrices matrices_;
    std::size_t ranks_per_host_;
    std::deque<detail::GroupGeometry> groups_;  // the holders refer to them
    detail::List<detail::GroupHolders> holders_;
    detail::List<detail::MatrixUnit> units_;
};

}  // namespace shardkit::planner
