// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/plan/step_counts.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>
#include <shardkit/schedule/step_costs.hpp>

namespace shardkit::schedule {

/// The time of an operation, in seconds from the start of its step. Gathers for the next step end after this one.
struct OpTime {
    double begin = 0;
    double end = 0;

    friend constexpr bool operator==(const OpTime&, const OpTime&) noexcept = default;
};

/// How long a step takes, and what it is spent on.
struct StepSeconds {
    double seconds = 0;        ///< predicted: from the end of one step to the end of the next; measured: from the
                               ///< Accumulation to the end of the optimizer's step
    double compute = 0;        ///< part of `seconds` in which the rank computes
    double communication = 0;  ///< sum over its collectives, measured ones with waits for other ranks, predicted ones
                               ///< with what updates wait for offloaded states

    /// Returns the seconds in which the rank waits for communication.
    constexpr double exposed() const noexcept { return seconds - compute; }
    /// Returns exposed() as a part of all communication; 0 where there is none.
    constexpr double exposed_share() const noexcept { return communication > 0 ? exposed() / communication : 0; }
};
/// The predicted times of a step.
struct StepTimes : StepSeconds {
    std::vector<OpTime> ops;
};

}  // namespace shardkit::schedule

namespace shardkit::detail {

/// The seconds of each of a group's collectives on a mesh.
class CommunicationSeconds {
  public:
    constexpr CommunicationSeconds(const GroupDescription& group, const AxisGrid& mesh,
                                   const schedule::StepCosts& costs) {
        const GroupRows rows(group);
        const GroupAxes axes = GroupAxes::of(group, mesh);
        for (std::size_t i = 0; i < rows.collectives().size(); ++i) {
            const CollectiveRow& row = rows.collectives()[i];
            const auto over = static_cast<std::size_t>(row.over);
            if (axes.ranks[over] == 1) { continue; }
            const std::size_t numel =
                row.extent == Extent::tp_sum ? largest_tp_part(group, rows) : group.numel_of(row.extent);
            const std::uint64_t moved = moved_by_row(group, rows, row, numel, axes.ranks[over], costs.engine).bytes;
            by_row_[i] = costs.links.link(row.verb, spans_nodes(axes.axes[over], mesh, costs.links.ranks_per_node))
                             .seconds(ring_messages(row.verb, axes.ranks[over]), static_cast<double>(moved));
        }
    }
    /// Returns the seconds of the collectives that an act calls.
    constexpr double of(const GroupRows& rows, std::span<const CollectiveRow> calls) const noexcept {
        double seconds = 0;
        for (const CollectiveRow& call : calls) {
            seconds += by_row_[static_cast<std::size_t>(&call - rows.collectives().data())];
        }
        return seconds;
    }

  private:
    /// The largest part counts: the other ranks wait for the one that sums most.
    static constexpr std::size_t largest_tp_part(const GroupDescription& group, const PlacementTable& table) {
        const std::size_t part = group.numel_of(table.reduced);
        std::size_t largest = 0;
        for (std::size_t s = 0; s < group.parts_of(table.reduced); ++s) {
            largest = std::max(largest, intersect(shard_range(s, part, group.buffer_numel), group.tp_sum).size());
        }
        return largest;
    }

    std::array<double, PlacementTable::most_collectives> by_row_{};
};

/// Simulates a step's operations on three lanes, each in order, with the waits that their data requires.
class StepSimulation {
  public:
    SHARDKIT_CONSTEXPR_VECTOR StepSimulation(const Schedule& schedule, std::span<const GroupDescription> groups,
                                             const AxisGrid& mesh, const schedule::StepCosts& costs,
                                             SourceLocation where)
        : schedule_(schedule),
          costs_(costs),
          described_(groups),
          plan_(plan_slots(schedule, groups)),
          ended_(filled(schedule.size(), 0.0)),
          batches_(filled(costs.batches.size(), 0.0)) {
        require_described(schedule, groups, where);
        require_argument(costs.groups.size() == groups.size(), where, "simulate: seconds of ", costs.groups.size(),
                         " groups given, expected of ", groups.size());
        require_possible(costs, where);
        for (const schedule::Op& op : schedule.ops()) {
            if (op.act == Act::reduce) { sums_ = op.lane; }
            require_argument(!schedule::is_of_batch(op.act) || op.microbatch < costs.batches.size(), where,
                             "simulate: seconds of ", costs.batches.size(),
                             " batches of matrices given, expected of batch ", op.microbatch, " too");
        }
        const planner::PlanOptions options{.optimizer_states = costs.optimizer_states,
                                           .offload_slot_bytes = costs.offload_slot_bytes};
        for (const GroupDescription& group : groups) {
            const double update = costs.groups[groups_.size()].update;
            const double offloaded =
                planner::offloaded_update_seconds(update, planner::plan_host_link(group, options), costs.links.host);
            groups_.push_back({CommunicationSeconds(group, mesh, costs), offloaded - update});
        }
        if (mesh.size() > 1) {
            norm_ = costs.links
                        .link(Verb::all_reduce,
                              spans_nodes(planner::PlannedAxes::world(), mesh, costs.links.ranks_per_node))
                        .seconds(ring_messages(Verb::all_reduce, mesh.size()),
                                 static_cast<double>(moved_by_norm(mesh, costs.engine).bytes));
        }
    }

    SHARDKIT_CONSTEXPR_VECTOR schedule::StepTimes run() {
        round();
        round();  // the next step begins with operations of this one still running
        return round();
    }

  private:
    struct Group {
        CommunicationSeconds seconds;
        double states_wait = 0;  // of an update, for the link to the host's memory
        double gathered = 0;
        double added = 0;
        double reduced = 0;
        double updated = 0;
        std::uint32_t forwards = 0;  // microbatches whose forward pass was counted
        double due = 0;              // computation that the group's next operation ends
    };

    SHARDKIT_CONSTEXPR_VECTOR double& lane(schedule::Lane lane) noexcept {
        return free_[static_cast<std::size_t>(lane)];
    }

    SHARDKIT_CONSTEXPR_VECTOR schedule::StepTimes round() {
        const double begin = lane(schedule::Lane::compute);
        schedule::StepTimes times;
        ModelStep step(described_);
        for (Group& group : groups_) {
            group.forwards = 0;
            group.due = 0;
        }
        for (std::size_t i = 0; i < schedule_.size(); ++i) {
            const schedule::Op& op = schedule_[i];
            schedule::OpTime time;
            if (op.act == Act::norm) {
                time = norm(times);
            } else if (schedule::is_of_batch(op.act)) {
                time = batch(op, times);
            } else {
                time = on_group(i, step.apply(op.act, op.group, op.microbatch), step.rows(op.group), times);
            }
            times.ops.push_back({time.begin - begin, time.end - begin});
        }
        times.seconds = lane(schedule::Lane::compute) - begin;
        return times;
    }

    /// Returns when `slot` is available: after the operations that released the slots before it.
    constexpr double available(std::size_t slot, double at) const {
        if (slot == ScheduledSlot::none) { return at; }
        for (const std::size_t before : plan_.slots[slot].after) {
            if (before != ScheduledSlot::none) { at = std::max(at, ended_[plan_.slots[before].end]); }
        }
        return at;
    }

    SHARDKIT_CONSTEXPR_VECTOR schedule::OpTime on_group(std::size_t i, const Applied& applied, const GroupRows& rows,
                                                        schedule::StepTimes& times) {
        const schedule::Op& op = schedule_[i];
        Group& group = groups_[op.group];
        const schedule::GroupSeconds& seconds = costs_.groups[op.group];
        double& now = lane(op.lane);
        double begin = now;
        double computes = 0;
        double communicates = group.seconds.of(rows, applied.calls);
        double* ends = nullptr;  // what others wait for
        switch (op.act) {
            case Act::gather:
                begin = available(plan_.taken_by(i, SlotUse::full_parameters), std::max(begin, group.updated));
                ends = &group.gathered;
                break;
            case Act::reduce:
            case Act::all_reduce:
                begin = available(plan_.taken_by(i, SlotUse::addend), std::max({begin, group.added, group.reduced}));
                begin = available(plan_.taken_by(i, SlotUse::sums), begin);
                ends = &group.reduced;
                break;
            case Act::use:
                begin = std::max(begin, group.gathered);
                if (group.forwards == op.microbatch) {
                    ++group.forwards;
                    group.due += seconds.forward;
                }
                break;
            case Act::zero:
                begin = std::max(available(plan_.taken_by(i, SlotUse::full_gradients), begin),
                                 applied.works_in ? 0 : group.reduced);
                group.due += seconds.backward;
                break;
            case Act::add:
                ends = &group.added;
                [[fallthrough]];
            case Act::close:
                computes = std::exchange(group.due, 0);
                break;
            case Act::update:
                begin = std::max(begin, group.reduced);
                computes = seconds.update;
                communicates = group.states_wait;
                ends = &group.updated;
                break;
            default:
                break;
        }
        now = begin + computes + communicates;
        times.compute += computes;
        times.communication += communicates;
        if (ends != nullptr) { *ends = now; }
        ended_[i] = now;
        return {begin, now};
    }
    /// The partial sums travel in the lane of the reductions, after them, and the rank waits.
    SHARDKIT_CONSTEXPR_VECTOR schedule::OpTime norm(schedule::StepTimes& times) {
        double& now = lane(schedule::Lane::compute);
        double begin = now;
        for (const Group& group : groups_) { begin = std::max(begin, group.reduced); }
        const double sent = std::max(begin + costs_.norm, lane(sums_));
        now = sent + norm_;
        lane(sums_) = now;
        times.compute += costs_.norm;
        times.communication += norm_;
        return {begin, now};
    }

    /// An act on a batch begins behind the one before it; the first behind the reductions.
    SHARDKIT_CONSTEXPR_VECTOR schedule::OpTime batch(const schedule::Op& op, schedule::StepTimes& times) {
        double& now = lane(op.lane);
        double& done = batches_[op.microbatch];
        if (op.act == Act::direct) {
            done = 0;
            for (const Group& group : groups_) { done = std::max(done, group.reduced); }
        }
        const double takes = costs_.batches[op.microbatch].of(op.act);
        const double begin = std::max(now, done);
        now = done = begin + takes;
        (schedule::lane_of(op.act) == schedule::Lane::compute ? times.compute : times.communication) += takes;
        return {begin, now};
    }

    const Schedule& schedule_;
    const schedule::StepCosts& costs_;
    std::span<const GroupDescription> described_;
    SlotPlan plan_;
    std::vector<double> ended_;  // when each operation last ended
    std::vector<Group> groups_;
    std::vector<double> free_ = filled(3, 0.0);  // by lane; nvcc's front end miscompiles an array here
    std::vector<double> batches_;                // when the last act on each ended
    double norm_ = 0;
    schedule::Lane sums_ = schedule::Lane::reduce;  // the lane of the reductions
};

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Returns the times of a step of the schedule in steady state. Computation takes what `costs` say for each group,
/// communication runs as rings over the links of the time model, and lanes wait for each other as in the stores. The
/// host takes no time.
/// Cost:    three times the operations, and plan_slots; no rank is needed, works in constant expressions
/// @throws  std::invalid_argument unless every group is described and has costs, all of them finite and >= 0, and the
///          links have some bandwidth
/// Source:  that of planner::communication_seconds for the collectives
SHARDKIT_CONSTEXPR_VECTOR StepTimes simulate(const Schedule& schedule,
                                             std::span<const planner::GroupDescription> groups, const AxisGrid& mesh,
                                             const StepCosts& costs,
                                             SourceLocation where = SourceLocation::current()) {
    return detail::StepSimulation(schedule, groups, mesh, costs, where).run();
}

/// How many lanes an engine has for communication beside the computation.
enum class CommunicationLanes : std::uint8_t {
    in_compute,  ///< communication takes the rank's own time: threads and mpi without overlap
    one,         ///< gathers and reductions wait for each other: nccl and mpi unless separated
    two          ///< nccl, and threads and mpi with communication threads of their own
};
/// Returns the same operations in the lanes that an engine has.
SHARDKIT_CONSTEXPR_VECTOR Schedule on_lanes(const Schedule& schedule, CommunicationLanes lanes) {
    Schedule made;
    for (Op op : schedule.ops()) {
        op.lane = lane_of(op.act);
        if (lanes != CommunicationLanes::two && op.lane != Lane::compute) {
            op.lane = lanes == CommunicationLanes::one ? Lane::gather : Lane::compute;
        }
        made.add(op);
    }
    return made;
}

}  // namespace shardkit::schedule
