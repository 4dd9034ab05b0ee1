// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/step_counts.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::schedule {

/// Returns the plan of a step that follows the schedule. It assumes nothing about the trainer: of the options only
/// the engine and the optimizer's states are used.
///     const Plan planned = plan(schedule, describe_groups(model), rank.grid(), {.optimizer_states = 1});
/// What whole matrices add is in a planner::MatrixPlan.
/// Cost:    arithmetic; works in constant expressions
/// @post    memory.total() without `staging` and `engine` is peak(schedule, groups); traffic is what its log
///          reports for a steady step, and an upper bound for a step that gathers a group which it does not update
/// @throws  std::invalid_argument when the schedule has a group that is not described
SHARDKIT_CONSTEXPR_VECTOR Plan plan(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                                    const AxisGrid& mesh, planner::PlanOptions options = {},
                                    SourceLocation where = SourceLocation::current()) {
    detail::require_described(schedule, groups, where);
    options.norms_per_step = 0;
    detail::ModelStep step(groups);
    std::vector<detail::StepCounts> counts = detail::filled(groups.size(), detail::StepCounts{});
    for (const Op& op : schedule.ops()) {
        if (op.act == Act::norm) {
            ++options.norms_per_step;
        } else if (is_of_group(op.act)) {
            counts[op.group].add(step.rows(op.group), step.apply(op.act, op.group, op.microbatch));
        }
    }
    planner::MemoryPlan memory = detail::resting_memory(groups, options);
    detail::add_buffer(memory, &planner::MemoryPlan::arena, arena_bytes(schedule, groups, where).value,
                       options.engine);
    return detail::plan_of(groups, mesh, options, memory,
                           [&](const detail::GroupRows&, std::size_t group) { return counts[group]; });
}

}  // namespace shardkit::schedule
