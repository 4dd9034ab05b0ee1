// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/muon/matrix_plan.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/schedule/step_costs.hpp>

namespace shardkit::schedule {

/// How fast a rank works on whole matrices.
struct MatrixRates {
    double cost = 0;                                            ///< of MatrixRule::cost, in a second
    double elements = std::numeric_limits<double>::infinity();  ///< of a pass over elements, in a second
};

/// Returns the seconds of each batch of matrices of a plan, for StepCosts::batches: of the rank that takes longest,
/// as the others wait for it.
///     const auto batches = batch_seconds(planner.plan(), mesh.grid(), links, {.cost = 5e10});
///     const StepTimes times = simulate(schedule, groups, mesh.grid(), {seconds, links, engine, 0, batches});
/// Cost:    arithmetic; no rank is needed
/// @throws  std::invalid_argument unless both rates are above 0, and as planner::communication_seconds
inline std::vector<BatchSeconds> batch_seconds(const planner::MatrixPlan& plan, const AxisGrid& mesh,
                                               const planner::TimeModel& links, const MatrixRates& rates,
                                               SourceLocation where = SourceLocation::current()) {
    if (!(rates.cost > 0) || !(rates.elements > 0)) {
        throw_invalid_argument(where, "batch_seconds: rates of ", detail::number_text(rates.cost), " and ",
                               detail::number_text(rates.elements), " in a second given, expected above 0");
    }
    std::vector<BatchSeconds> seconds;
    for (const planner::PlannedBatch& batch : plan.batches) {
        const double pass = static_cast<double>(batch.elements) / rates.elements;
        seconds.push_back({pass, planner::communication_seconds(batch.to_owners, mesh, links, where),
                           static_cast<double>(batch.cost) / rates.cost,
                           planner::communication_seconds(batch.from_owners, mesh, links, where), pass});
    }
    return seconds;
}

}  // namespace shardkit::schedule
