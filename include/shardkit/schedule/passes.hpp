// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/schedule/idle_stretches.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>
#include <shardkit/schedule/slots.hpp>

// Pure functions from a step to a better one. None changes what the program does, its acts and their order: a pass
// moves, adds or leaves out communication. What obeys the rules of a step, obeys them behind a pass. One that asks
// `groups` throws std::invalid_argument where they lack a group of the schedule.

namespace shardkit {

namespace detail {

/// The last operation of that act, by group; no_op where there is none.
SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> last_ops(const Schedule& schedule, std::size_t groups, Act act) {
    std::vector<std::size_t> last = filled(groups, no_op);
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group < groups) { last[schedule[i].group] = i; }
    }
    return last;
}
/// The first operation behind `from` of that act and group; no_op where there is none.
constexpr std::size_t next_op(const Schedule& schedule, std::size_t from, Act act, std::uint32_t group) {
    for (std::size_t i = from; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group == group) { return i; }
    }
    return no_op;
}
/// The earliest place, not before `first`, of an operation at `at` that stays behind what the group does before.
constexpr std::size_t behind_group(const Schedule& schedule, std::size_t at, std::uint32_t group,
                                   std::size_t first = 0) {
    while (at > first && (schedule[at - 1].act == Act::norm || schedule[at - 1].group != group)) { --at; }
    return at;
}

}  // namespace detail

/// Each gather starts `depth` windows before its use: in the forward pass with the window before it, in the backward
/// pass before the reduction of the group before it. Gathers keep their order and stay in their step.
/// Memory:  as many full groups more as `depth`, where parameters are released; bits are unchanged
/// Source:  FSDP's forward and backward prefetch, arXiv 2304.11277, section 3.3.2, from an order that is known
SHARDKIT_CONSTEXPR_VECTOR Schedule prefetch(Schedule schedule, std::span<const GroupDescription> /*groups*/,
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
SHARDKIT_CONSTEXPR_VECTOR Schedule keep_gathered(const Schedule& schedule, std::span<const GroupDescription> groups,
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
    std::vector<std::size_t> held = detail::bytes_held(schedule, detail::slots_of(schedule, groups));
    // Where not even the bytes that are needed at one time fit, there is nothing to place.
    const auto has_room = [&](const Candidate& candidate) {
        const std::size_t most =
            detail::most_held(held, candidate.operation - candidate.idle + 1, candidate.operation);
        return resting + most + rows[schedule[candidate.operation].group].full_bytes <= limit.value;
    };
    const auto keep = [&](const Candidate& candidate) {
        left_out[candidate.operation] = 1;
        const std::size_t bytes = rows[schedule[candidate.operation].group].full_bytes;
        for (std::size_t i = candidate.operation - candidate.idle + 1; i < candidate.operation; ++i) {
            held[i] += bytes;
        }
    };
    // As many at a time as fitted last, and twice as many next: slots are placed once for all of them. Where sizes
    // leave gaps, single ones may miss again and again: after so many, all of a batch are left out.
    constexpr std::size_t most_misses = 64;
    std::size_t misses = 0;
    std::size_t batch = 1;
    for (std::size_t first = 0; first < candidates.size();) {
        const std::vector<char> before = left_out;
        const std::vector<std::size_t> held_before = held;
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
SHARDKIT_CONSTEXPR_VECTOR Schedule gather_after_update(const Schedule& schedule,
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
SHARDKIT_CONSTEXPR_VECTOR Schedule reduce_last(const Schedule& schedule, std::span<const GroupDescription> groups) {
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
SHARDKIT_CONSTEXPR_VECTOR Schedule overlap_reductions(Schedule schedule,
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
SHARDKIT_CONSTEXPR_VECTOR Schedule gather_after_zero(const Schedule& schedule,
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

/// Undoes what does not fit `limit` bytes of the library's buffers, where most is held first: a prefetched gather
/// starts right before its use, a group that stayed gathered is released and gathered again, unreduced microbatches
/// are reduced, a reduction starts right behind its last addend.
/// @throws std::invalid_argument, with the bytes that are needed at least, where nothing is left to undo
SHARDKIT_CONSTEXPR_VECTOR Schedule memory_limit(Schedule schedule, std::span<const GroupDescription> groups,
                                                ByteCount limit, std::size_t optimizer_states = 2,
                                                SourceLocation where = SourceLocation::current()) {
    const auto needed = [&](const Schedule& step) { return peak(step, groups, optimizer_states, where); };
    while (needed(schedule) > limit) {
        const std::vector<detail::IdleStretch> idle = detail::idle_stretches(schedule, groups);
        // All of them, or, where that is more than enough, as few as are.
        std::size_t enough = idle.size();
        Schedule less = detail::without_idle(schedule, idle);
        if (needed(less) <= limit) {
            for (std::size_t too_few = 0; enough - too_few > 1;) {
                const std::size_t middle = too_few + (enough - too_few) / 2;
                Schedule some = detail::without_idle(schedule, std::span(idle).first(middle));
                if (needed(some) <= limit) {
                    less = static_cast<Schedule&&>(some);
                    enough = middle;
                } else {
                    too_few = middle;
                }
            }
        } else if (less == schedule) {
            throw_invalid_argument(where, "memory_limit: ", limit.value, " bytes given, expected at least ",
                                   needed(less).value, ", which the step needs without any prefetching");
        }
        schedule = static_cast<Schedule&&>(less);
    }
    return schedule;
}

}  // namespace shardkit
