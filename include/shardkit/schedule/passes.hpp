// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/schedule/idle_stretches.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>
#include <shardkit/schedule/slots.hpp>

// Pure functions from a step to a better one. None changes what the program does, its acts and their order: a pass
// moves, adds or leaves out communication (update_early alone moves updates). What obeys the rules of a step, obeys
// them behind a pass. One that asks `groups` throws std::invalid_argument where they lack a group of the schedule.

namespace shardkit {

namespace detail {

/// The last operation of that act, by group; no_op where there is none.
SHARDKIT_VECTOR_CONSTEXPR std::vector<std::size_t> last_ops(const Schedule& schedule, std::size_t groups, Act act) {
    std::vector<std::size_t> last = filled(groups, no_op);
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group < groups) { last[schedule[i].group] = i; }
    }
    return last;
}
/// The first operation behind `from` of that act and group; no_op where there is none.
SHARDKIT_VECTOR_CONSTEXPR std::size_t next_op(const Schedule& schedule, std::size_t from, Act act,
                                              std::uint32_t group) {
    for (std::size_t i = from; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group == group) { return i; }
    }
    return no_op;
}
/// The earliest place, not before `first`, of an operation at `at` that stays behind what the group does before.
SHARDKIT_VECTOR_CONSTEXPR std::size_t behind_group(const Schedule& schedule, std::size_t at, std::uint32_t group,
                                                   std::size_t first = 0) {
    while (at > first && (schedule[at - 1].act == Act::norm || schedule[at - 1].group != group)) { --at; }
    return at;
}

}  // namespace detail

/// Each gather starts `depth` windows before its use: in the forward pass with the window before it, in the backward
/// pass before the reduction of the group before it. Gathers keep their order and stay in their step.
/// Memory:  as many full groups more as `depth`, where parameters are released; bits are unchanged
/// Source:  FSDP's forward and backward prefetch, arXiv 2304.11277, section 3.3.2, from an order that is known
SHARDKIT_VECTOR_CONSTEXPR Schedule prefetch(Schedule schedule, std::span<const GroupDescription> /*groups*/,
                                            std::size_t depth = 1) {
    if (depth == 0) { return schedule; }
    std::vector<std::size_t> gathers;  // by their operation
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act != Act::gather) { continue; }
        const std::size_t number = gathers.size();
        gathers.push_back(i);
        if (number == 0 || detail::next_op(schedule, i, Act::use, schedule[i].group) == detail::no_op) { continue; }
        std::size_t place = gathers[number - 1] + 1;
        if (number >= depth) {
            const std::size_t before = gathers[number - depth];
            const std::size_t use = detail::next_op(schedule, before, Act::use, schedule[before].group);
            if (use == detail::no_op) { continue; }
            place = std::max(place, use + 1);
        }
        if (place < i) { place = detail::behind_group(schedule, i, schedule[i].group, place); }
        if (place < i) {
            schedule.move(i, place);
            gathers[number] = place;
        }
    }
    return schedule;
}

/// A group that was released and is needed again stays gathered instead, where the step then still fits `limit` bytes
/// of the library's buffers: groups whose next use comes soonest first, the last blocks between forward and backward
/// pass.
/// Memory:  up to `limit`, see peak; bits are unchanged
/// Source:  reshard_after_forward of FSDP2, decided by memory instead of by hand
SHARDKIT_VECTOR_CONSTEXPR Schedule keep_gathered(const Schedule& schedule, std::span<const GroupDescription> groups,
                                                 ByteCount limit, std::size_t optimizer_states = 2,
                                                 SourceLocation where = SourceLocation::current()) {
    struct Candidate {
        std::size_t operation = 0;
        std::size_t idle = 0;
    };
    const std::vector<detail::GroupRows> rows = detail::rows_of(schedule, groups, where);
    std::vector<Candidate> candidates;
    std::vector<std::size_t> closed = detail::filled(groups.size(), detail::no_op);
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        if (op.act == Act::norm) { continue; }
        if (op.act == Act::close) { closed[op.group] = i; }
        if (op.act == Act::update) { closed[op.group] = detail::no_op; }
        if (op.act == Act::gather && rows[op.group].leases_full && closed[op.group] != detail::no_op) {
            candidates.push_back({i, i - closed[op.group]});
        }
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.idle != b.idle ? a.idle < b.idle : a.operation < b.operation;
    });
    std::vector<char> left_out = detail::filled(schedule.size(), char{0});
    const auto without = [&] {
        Schedule made;
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            if (left_out[i] == 0) { made.add(schedule[i]); }
        }
        return made;
    };
    const std::size_t resting = detail::resting_bytes(schedule, groups, optimizer_states).value;
    detail::HeldBytes held(detail::bytes_held(schedule, detail::slots_of(schedule, groups)));
    // Where not even the bytes that are needed at one time fit, there is nothing to place.
    const auto has_room = [&](const Candidate& candidate) {
        const std::size_t most = held.most(candidate.operation - candidate.idle + 1, candidate.operation);
        return resting + most + rows[schedule[candidate.operation].group].full_bytes <= limit.value;
    };
    const auto keep = [&](const Candidate& candidate) {
        left_out[candidate.operation] = 1;
        held.add(candidate.operation - candidate.idle + 1, candidate.operation,
                 rows[schedule[candidate.operation].group].full_bytes);
    };
    // As many at a time as fitted last, and twice as many next: slots are placed once for all of them. Where sizes
    // leave gaps, single ones may miss again and again: after so many, all of a batch are left out.
    constexpr std::size_t most_misses = 64;
    std::size_t misses = 0;
    std::size_t batch = 1;
    for (std::size_t first = 0; first < candidates.size();) {
        const std::vector<char> before = left_out;
        const detail::HeldBytes held_before = held;
        std::size_t taken = 0;
        std::size_t next = first;
        for (; next < candidates.size() && taken < batch; ++next) {
            if (!has_room(candidates[next])) { continue; }
            keep(candidates[next]);
            ++taken;
        }
        const bool fits = taken == 0 || resting + arena_bytes(without(), groups, where).value <= limit.value;
        if (!fits) {
            left_out = before;
            held = held_before;
        }
        if (!fits && taken == 1) { ++misses; }
        const bool goes_on = fits || taken == 1 || misses >= most_misses;
        if (goes_on) { first = next; }
        batch = fits || misses >= most_misses ? 2 * batch : std::max<std::size_t>(taken / 2, 1);
    }
    return without();
}

/// Copies that an update makes stale and the next window would gather (ShardOptimizer, ShardGradOp) are gathered
/// behind the updates, in the order in which the next step needs them.
/// Memory:  none; bits are unchanged
SHARDKIT_VECTOR_CONSTEXPR Schedule gather_after_update(const Schedule& schedule,
                                                       std::span<const GroupDescription> groups,
                                                       SourceLocation where = SourceLocation::current()) {
    const std::vector<detail::GroupRows> rows = detail::rows_of(schedule, groups, where);
    const std::vector<std::size_t> updates = detail::last_ops(schedule, groups.size(), Act::update);
    Schedule made;
    std::vector<Op> behind;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        const bool moves = op.act == Act::gather && !rows[op.group].leases_full &&
                           updates[op.group] != detail::no_op && updates[op.group] > i;
        if (moves) {
            behind.push_back({Act::gather, op.group, 0, op.lane});
        } else {
            made.add(op);
        }
    }
    for (const Op& gather : behind) { made.add(gather); }
    return made;
}

/// Microbatches are added up unreduced and reduced once, with the last one.
/// Memory:  the full gradients of every group, from the first microbatch to the last
/// Numbers: sums are taken in another order: the bits of a policy with Accumulate::unreduced
SHARDKIT_VECTOR_CONSTEXPR Schedule reduce_last(const Schedule& schedule, std::span<const GroupDescription> groups) {
    const std::vector<std::size_t> reductions = detail::last_ops(schedule, groups.size(), Act::reduce);
    Schedule made;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        const bool left_out = op.act == Act::reduce && op.group < groups.size() && reductions[op.group] != i;
        if (!left_out) { made.add(op); }
    }
    return made;
}

/// Each reduction starts behind the next group's gradient buffer, which then lies in memory of its own: that group's
/// backward pass does not wait until the reduction is done.
/// Memory:  one more full gradient; bits are unchanged
/// Source:  FSDP, whose reduce-scatter runs beside the next layer's backward pass, arXiv 2304.11277, section 3.3
SHARDKIT_VECTOR_CONSTEXPR Schedule overlap_reductions(Schedule schedule,
                                                      std::span<const GroupDescription> /*groups*/) {
    for (std::size_t i = schedule.size(); i-- > 0;) {
        const Op op = schedule[i];
        if (op.act != Act::reduce && op.act != Act::all_reduce) { continue; }
        const auto passes = [&](const Op& next) {
            switch (next.act) {
                case Act::gather:
                case Act::skip:
                    return true;
                case Act::use:
                case Act::reduce:
                case Act::all_reduce:
                    return next.group != op.group;
                case Act::close:
                    return next.group == op.group;  // of another one, behind which its work is done: it is too late
                default:
                    return false;
            }
        };
        std::size_t next = i + 1;
        while (next < schedule.size() && passes(schedule[next])) { ++next; }
        const bool found = next < schedule.size() && schedule[next].act == Act::zero;
        if (found && schedule[next].group != op.group) { schedule.move(i, next); }
    }
    return schedule;
}

/// Gathers that would start right before a gradient buffer is taken start right behind it, so that copies and zeroing
/// do not share the memory's speed; none of them where the costs say that the rank then waits longer. For engines
/// whose ranks zero and copy by the same processors, and trainers that take a group's gradients when its backward
/// pass begins: where one takes them later, the gather waits for that.
/// Memory:  none; bits are unchanged
/// Cost:    two simulations
SHARDKIT_VECTOR_CONSTEXPR Schedule gather_after_zero(const Schedule& schedule,
                                                     std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                                     const StepCosts& costs,
                                                     SourceLocation where = SourceLocation::current()) {
    Schedule moved = schedule;
    for (std::size_t i = 0; i < moved.size(); ++i) {
        if (moved[i].act != Act::zero) { continue; }
        std::size_t first = i;
        while (first > 0 && moved[first - 1].act == Act::gather) { --first; }
        moved.move(i, first);
    }
    const double before = simulate(schedule, groups, mesh, costs, where).exposed();
    return simulate(moved, groups, mesh, costs, where).exposed() <= before ? moved : schedule;
}

/// Each group is updated as soon as its gradient is reduced, where the costs say that the rank does not wait longer
/// for that; a step with a norm stays as it is, because every update waits for that. For planning: an optimizer's
/// step updates all groups in one call, so `follow` refuses the result.
/// Memory:  none; bits are unchanged
/// Cost:    a simulation for every place that is tried
SHARDKIT_VECTOR_CONSTEXPR Schedule update_early(Schedule schedule, std::span<const GroupDescription> groups,
                                                const AxisGrid& mesh, const StepCosts& costs,
                                                SourceLocation where = SourceLocation::current()) {
    for (const Op& op : schedule.ops()) {
        if (op.act == Act::norm) { return schedule; }
    }
    double seconds = simulate(schedule, groups, mesh, costs, where).seconds;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act != Act::update) { continue; }
        for (std::size_t place = detail::behind_group(schedule, i, schedule[i].group); place < i; ++place) {
            Schedule moved = schedule;
            moved.move(i, place);
            const double now = simulate(moved, groups, mesh, costs, where).seconds;
            if (now <= seconds) {
                schedule = moved;
                seconds = now;
                break;
            }
        }
    }
    return schedule;
}

/// Undoes what does not fit `limit` bytes of the library's buffers, where most is held first: a prefetched gather
/// starts right before its use, a group that stayed gathered is released and gathered again, unreduced microbatches
/// are reduced, a reduction starts right behind its last addend.
/// @throws std::invalid_argument, with the bytes that are needed at least, where nothing is left to undo
SHARDKIT_VECTOR_CONSTEXPR Schedule memory_limit(Schedule schedule, std::span<const GroupDescription> groups,
                                                ByteCount limit, std::size_t optimizer_states = 2,
                                                SourceLocation where = SourceLocation::current()) {
    if (peak(schedule, groups, optimizer_states, where) <= limit) { return schedule; }
    // One at a time; where that takes long, more and more until it fits, and then fewer: the last one was needed.
    constexpr std::size_t singles = 16;
    Schedule fitting;
    std::size_t batch = 1;
    for (std::size_t round = 1;; ++round) {
        Schedule less = detail::without_idle(schedule, groups, batch);
        const ByteCount needed = peak(less, groups, optimizer_states, where);
        if (needed <= limit) {
            if (batch == 1) { return less; }
            fitting = static_cast<Schedule&&>(less);
        } else if (less == schedule) {
            if (fitting.size() > 0) { return fitting; }
            throw_invalid_argument(where, "memory_limit: ", limit.value, " bytes given, expected at least ",
                                   needed.value, ", which the step needs without any prefetching");
        } else {
            schedule = static_cast<Schedule&&>(less);
        }
        if (fitting.size() > 0) {
            batch = std::max<std::size_t>(batch / 2, 1);
        } else if (round >= singles) {
            batch *= 2;
        }
    }
}

}  // namespace shardkit
