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
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>

// Passes: pure functions from a step to a better one. A pass keeps the acts of the program and their order; it moves,
// adds or removes communication; update_in_backward moves updates. A schedule that keeps the rules of a step still
// keeps them after a pass. A pass that uses `groups` throws std::invalid_argument where they lack a group of the
// schedule.

namespace shardkit::detail {

inline constexpr std::size_t no_op = static_cast<std::size_t>(-1);

/// Returns the maximum of `held` over operations [begin, end).
constexpr std::size_t most_held(std::span<const std::size_t> held, std::size_t begin, std::size_t end) {
    if (begin >= end) { return 0; }
    const auto during = held.subspan(begin, end - begin);
    return *std::max_element(during.begin(), during.end());
}
/// Returns for each group its last operation with that act; no_op where there is none.
SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> last_ops(const Schedule& schedule, std::size_t groups, Act act) {
    std::vector<std::size_t> last = filled(groups, no_op);
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group < groups) { last[schedule[i].group] = i; }
    }
    return last;
}
/// Returns the first operation from `from` on with that act and group; no_op where there is none.
constexpr std::size_t next_op(const Schedule& schedule, std::size_t from, Act act, std::uint32_t group) {
    for (std::size_t i = from; i < schedule.size(); ++i) {
        if (schedule[i].act == act && schedule[i].group == group) { return i; }
    }
    return no_op;
}
/// Returns the earliest place, not before `first`, to which operation `at` can move without passing an operation of
/// the group.
constexpr std::size_t behind_group(const Schedule& schedule, std::size_t at, std::uint32_t group,
                                   std::size_t first = 0) {
    while (at > first && (!schedule::is_of_group(schedule[at - 1].act) || schedule[at - 1].group != group)) { --at; }
    return at;
}

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Starts each gather `depth` windows before its use. In the forward pass this is with the window before it, in the
/// backward pass before the reduction of the group before it. Gathers keep their order and stay in their step.
/// Memory:  `depth` more full groups, where parameters are released; results keep their bits
/// Source:  FSDP's forward and backward prefetch, arXiv 2304.11277, section 3.3.2, with a known order
SHARDKIT_CONSTEXPR_VECTOR Schedule prefetch(Schedule schedule, std::span<const planner::GroupDescription> /*groups*/,
                                            std::size_t depth = 1) {
    if (depth == 0) { return schedule; }
    std::vector<std::size_t> gathers;  // their operations
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

/// Keeps groups gathered that would be released and gathered again, as far as the library's buffers then fit in
/// `limit` bytes. Groups whose next use comes soonest are kept first: the last blocks between forward and backward
/// pass.
/// Memory:  up to `limit`, see peak; results keep their bits
/// Source:  reshard_after_forward of FSDP2, chosen by memory instead of by hand
SHARDKIT_CONSTEXPR_VECTOR Schedule keep_gathered(const Schedule& schedule,
                                                 std::span<const planner::GroupDescription> groups, ByteCount limit,
                                                 OptimizerStates optimizer_states = 2,
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
        if (!is_of_group(op.act)) { continue; }
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
    // Without room for the bytes that are needed at the same time, slots need not be placed.
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
    // Batches: after a batch that fits, the next one is twice as large, and slots are placed once for a batch. Where
    // gaps between sizes make single candidates fail repeatedly, whole batches are rejected after this many failures.
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

/// Moves gathers that follow an update (ShardOptimizer, ShardGradOp) from the next window to right behind the
/// updates, in the order in which the next step needs them.
/// Memory:  none; results keep their bits
SHARDKIT_CONSTEXPR_VECTOR Schedule gather_after_update(const Schedule& schedule,
                                                       std::span<const planner::GroupDescription> groups,
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

/// Accumulates microbatches unreduced, and reduces them once, at the last one.
/// Memory:  the full gradients of every group, from the first microbatch to the last
/// Numbers: sums are made in another order; the bits are those of a policy with Accumulate::unreduced
SHARDKIT_CONSTEXPR_VECTOR Schedule reduce_last(const Schedule& schedule,
                                               std::span<const planner::GroupDescription> groups) {
    const std::vector<std::size_t> reductions = detail::last_ops(schedule, groups.size(), Act::reduce);
    Schedule made;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        const bool left_out = op.act == Act::reduce && op.group < groups.size() && reductions[op.group] != i;
        if (!left_out) { made.add(op); }
    }
    return made;
}

/// Makes each group's update behind the last of its reductions and windows, instead of all updates at the end:
/// gradient release. What a group with GradientRelease::at_update holds of gradients then exists until its own update
/// only. A trainer makes such a step with Optimizer::step_in_backward, and `record` records it so.
/// Memory:  gradients of the groups whose backward passes overlap, instead of the model's; results keep their bits
/// @throws  std::invalid_argument for a step with a norm, or with batches of whole matrices: they need the gradients
///          of all groups before the first update
SHARDKIT_CONSTEXPR_VECTOR Schedule update_in_backward(Schedule schedule,
                                                      std::span<const planner::GroupDescription> /*groups*/,
                                                      SourceLocation where = SourceLocation::current()) {
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act != Act::norm && !is_of_batch(schedule[i].act)) { continue; }
        throw_invalid_argument(
            where, "update_in_backward: operation ", i, ", ", name(schedule[i].act),
            ", needs the gradients of all groups before the first update, expected a step without");
    }
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].act != Act::update) { continue; }
        schedule.move(i, detail::behind_group(schedule, i, schedule[i].group));
    }
    return schedule;
}

/// Starts each reduction behind the next group's gradient buffer, which then has memory of its own: that group's
/// backward pass does not wait for the reduction.
/// Memory:  one more full gradient; results keep their bits
/// Source:  FSDP overlaps its reduce-scatter with the next layer's backward pass, arXiv 2304.11277, section 3.3
SHARDKIT_CONSTEXPR_VECTOR Schedule overlap_reductions(Schedule schedule,
                                                      std::span<const planner::GroupDescription> /*groups*/) {
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
                    return next.group == op.group;  // after another group's window its work is done: too late
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

}  // namespace shardkit::schedule
