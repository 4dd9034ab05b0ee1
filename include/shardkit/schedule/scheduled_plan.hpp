// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit {

namespace detail {

/// How often a schedule communicates for a group.
struct ScheduledCalls {
    std::uint64_t gathers = 0;
    std::uint64_t reductions = 0;
    std::uint64_t further = 0;  ///< across replicas and tp

    constexpr std::uint64_t of(const CollectiveRow& row) const noexcept {
        switch (row.when) {
            case When::each_window:
            case When::updated_window:
                return gathers;
            case When::first_microbatch:
                return reductions > 0 ? 1 : 0;
            case When::later_microbatch:
                return reductions > 0 ? reductions - 1 : 0;
            case When::last_microbatch:
                break;
        }
        return row.extent == Extent::full ? reductions : further;
    }
};

}  // namespace detail

/// The plan of a step that follows the schedule: nothing of what the trainer does is assumed, so of the options only
/// the engine and the optimizer's states are read.
///     const Plan planned = plan(schedule, describe_groups(model), rank.grid(), {.optimizer_states = 1});
/// Cost:    arithmetic; works in constant expressions
/// @post    memory.total() is peak(schedule, groups), the bytes that the rank's buffers take; traffic is what its log
///          says of a steady step, and the most of one that gathers a group which it does not update
/// @throws  std::invalid_argument when the schedule has a group that is not described
SHARDKIT_VECTOR_CONSTEXPR Plan plan(const Schedule& schedule, std::span<const GroupDescription> groups,
                                    const AxisGrid& mesh, PlanOptions options = {},
                                    SourceLocation where = SourceLocation::current()) {
    detail::require_described(schedule, groups, where);
    options.norms_per_step = 0;
    std::vector<detail::ScheduledCalls> calls = detail::filled(groups.size(), detail::ScheduledCalls{});
    for (const Op& op : schedule.ops()) {
        if (op.act == Act::norm) {
            ++options.norms_per_step;
        } else if (op.act == Act::gather) {
            ++calls[op.group].gathers;
        } else if (op.act == Act::reduce) {
            ++calls[op.group].reductions;
        } else if (op.act == Act::all_reduce) {
            ++calls[op.group].further;
        }
    }
    Plan made{0, detail::resting_memory(groups, options), {}};
    made.memory.arena = arena_bytes(schedule, groups, where);
    made.traffic =
        detail::traffic_of(groups, mesh, options,
                           [&](const detail::CollectiveRow& row, std::size_t group) { return calls[group].of(row); });
    for (const GroupDescription& group : groups) { made.numel += group.numel; }
    return made;
}

}  // namespace shardkit
