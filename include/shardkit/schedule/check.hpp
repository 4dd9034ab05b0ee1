// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>
#include <shardkit/schedule/slots.hpp>
#include <shardkit/schedule/step_rule.hpp>

namespace shardkit {

namespace detail {

/// One pass over a step, from the state that the step before left.
class StepChecker {
  public:
    SHARDKIT_VECTOR_CONSTEXPR StepChecker(const Schedule& schedule, std::span<const GroupDescription> groups)
        : schedule_(schedule), rows_(rows_of(groups)), states_(filled(groups.size(), State{})) {
        for (std::size_t g = 0; g < groups.size(); ++g) { states_[g].current = rows_[g].rests_current(); }
        for (const Op& op : schedule.ops()) {
            if (op.act == Act::update && op.group < groups.size()) { states_[op.group].has_update = true; }
        }
    }

    SHARDKIT_VECTOR_CONSTEXPR std::vector<Violation> check() {
        pass();  // whatever rests current in steady state, rests so
        found_.clear();
        pass();
        return found_;
    }

  private:
    struct State {
        bool has_update = false;  // in this step
        bool current = false;     // the full copy
        bool unused = false;      // gathered, and no window has shown it
        std::size_t windows = 0;
        bool out = false;  // a gradient buffer
        std::uint32_t added = 0;
        std::uint32_t unreduced = 0;
        bool skipped = false;
        bool reduced_further = false;
        bool done = false;  // reduced for good, and read
        bool updated = false;
    };

    SHARDKIT_VECTOR_CONSTEXPR void pass() {
        bool updates = false;
        for (std::size_t g = 0; g < states_.size(); ++g) {
            State& its = states_[g];
            const bool unused = its.unused;
            // What this step does not update, another one between two of them may have.
            const bool has_update = its.has_update;
            const bool current = has_update ? its.current : rows_[g].rests_current();
            its = {};
            its.has_update = has_update;
            its.current = current;
            its.unused = unused;
        }
        for (at_ = 0; at_ < schedule_.size(); ++at_) {
            const Op& op = schedule_[at_];
            if (op.act == Act::norm) {
                norm(updates);
            } else if (op.group >= states_.size()) {
                found_.push_back({StepRule::group_exists, at_, op.group});
            } else {
                updates = updates || op.act == Act::update;
                visit(op, rows_[op.group], states_[op.group]);
            }
        }
        end(updates);
    }

    SHARDKIT_VECTOR_CONSTEXPR void require(bool holds, StepRule rule, std::size_t group) {
        if (!holds) { found_.push_back({rule, at_, static_cast<std::uint32_t>(group)}); }
    }

    SHARDKIT_VECTOR_CONSTEXPR void visit(const Op& op, const GroupRows& rows, State& its) {
        const std::size_t g = op.group;
        switch (op.act) {
            case Act::gather:
                require(rows.gathers, StepRule::gather_where_sharded, g);
                require(its.windows == 0, StepRule::gather_outside_windows, g);
                require(!its.unused && (!its.current || rows.leases_full), StepRule::gather_is_used, g);
                its.current = true;
                its.unused = true;
                break;
            case Act::use:
                require(its.current, StepRule::gather_before_use, g);
                its.unused = false;
                ++its.windows;
                break;
            case Act::close:
                require(its.windows > 0, StepRule::window_open_at_close, g);
                if (its.windows > 0) { --its.windows; }
                break;
            case Act::zero:
                require(rows.trainable, StepRule::gradients_of_trainable, g);
                require(!its.skipped && !its.done, StepRule::gradients_of_step, g);
                require(!its.out, StepRule::add_before_zero, g);
                require(op.microbatch == its.added, StepRule::microbatches_in_order, g);
                its.out = true;
                break;
            case Act::add:
                require(its.out && op.microbatch == its.added, StepRule::zero_before_add, g);
                its.out = false;
                ++its.added;
                ++its.unreduced;
                break;
            case Act::skip:
                require(rows.trainable, StepRule::gradients_of_trainable, g);
                require(its.added == 0 && !its.out && !its.skipped, StepRule::gradients_of_step, g);
                its.skipped = true;
                break;
            case Act::reduce:
                require(its.unreduced > 0 && !its.out && op.microbatch + 1 == its.added, StepRule::add_before_reduce,
                        g);
                its.unreduced = 0;
                its.done = its.done || !rows.reduces_each;
                break;
            case Act::all_reduce:
                require(
                    rows.reduces_further && its.added > 0 && its.unreduced == 0 && !its.out && !its.reduced_further,
                    StepRule::add_before_reduce, g);
                its.reduced_further = true;
                its.done = true;
                break;
            case Act::update:
                update(g, rows, its);
                break;
            case Act::norm:
                break;
        }
    }
    SHARDKIT_VECTOR_CONSTEXPR void update(std::size_t g, const GroupRows& rows, State& its) {
        require(its.windows == 0, StepRule::windows_end_in_step, g);
        require(rows.trainable, StepRule::gradients_of_trainable, g);
        require(its.added > 0 && !its.skipped, StepRule::added_or_skipped, g);
        require_reduced(g, rows, its);
        require(!its.updated, StepRule::update_once, g);
        if (rows.gathers) {
            require(!its.unused, StepRule::gather_is_used, g);
            its.current = false;
            its.unused = false;
        }
        its.updated = true;
        its.done = true;
    }
    SHARDKIT_VECTOR_CONSTEXPR void require_reduced(std::size_t g, const GroupRows& rows, const State& its) {
        const bool reduced =
            its.unreduced == 0 && !its.out && (its.added == 0 || !rows.reduces_further || its.reduced_further);
        require(reduced, StepRule::reduced_before_read, g);
    }
    SHARDKIT_VECTOR_CONSTEXPR void norm(bool updates) {
        require(!updates, StepRule::norm_before_updates, 0);
        for (std::size_t g = 0; g < states_.size(); ++g) {
            if (!rows_[g].trainable) { continue; }
            require(states_[g].added > 0 || states_[g].skipped, StepRule::added_or_skipped, g);
            require_reduced(g, rows_[g], states_[g]);
            states_[g].done = true;
        }
    }
    SHARDKIT_VECTOR_CONSTEXPR void end(bool updates) {
        for (std::size_t g = 0; g < states_.size(); ++g) {
            State& its = states_[g];
            require(its.windows == 0, StepRule::windows_end_in_step, g);
            if (rows_[g].leases_full) {
                require(!its.unused, StepRule::gather_is_used, g);
                its.unused = false;
                its.current = false;
            }
            if (its.added > 0 || its.out) { require_reduced(g, rows_[g], its); }
            if (!updates || !rows_[g].trainable) { continue; }
            require(its.added > 0 || its.skipped, StepRule::added_or_skipped, g);
            require(its.updated || its.added == 0, StepRule::update_once, g);
        }
    }

    const Schedule& schedule_;
    std::vector<GroupRows> rows_;
    std::vector<State> states_;
    std::vector<Violation> found_;
    std::size_t at_ = 0;
};

/// Where what `peak` counts comes to more than `limit`, the arena counted up to the end of the highest buffer that
/// exists: the first operation of each such stretch.
SHARDKIT_VECTOR_CONSTEXPR std::vector<Violation> over_limit(const Schedule& schedule,
                                                            std::span<const GroupDescription> groups, ByteCount limit,
                                                            std::size_t optimizer_states) {
    const ByteCount resting = resting_bytes(schedule, groups, optimizer_states);
    const SlotPlan plan = place_slots(slots_of(schedule, groups));
    const auto held_with = [&](const ScheduledSlot& slot) { return resting + ByteCount(slot.offset + slot.bytes); };
    std::vector<Violation> found;
    if (resting > limit) {
        const bool takes = !plan.slots.empty() && plan.slots.front().begin == 0;
        found.push_back({StepRule::within_limit, 0, schedule.size() > 0 ? schedule[0].group : 0,
                         takes ? held_with(plan.slots.front()) : resting, limit});
        return found;
    }
    std::size_t over_until = 0;  // behind the last operation of the last stretch
    for (const ScheduledSlot& slot : plan.slots) {
        if (held_with(slot) <= limit) { continue; }
        if (found.empty() || slot.begin > over_until) {
            found.push_back({StepRule::within_limit, slot.begin, slot.group, held_with(slot), limit});
        }
        over_until = std::max(over_until, slot.end + 1);
    }
    return found;
}

}  // namespace detail

/// Every place where a schedule breaks a rule of a step, in its order; none where it can be followed. A step begins
/// as the one before it ends: what a step gathers behind its updates is current in the next. One without updates, an
/// evaluation's, begins as a step that trains may have ended: what that updates is out of date.
///     static_assert(check(schedule(), groups).empty());
/// Cost:    operations times groups at most; works in constant expressions
SHARDKIT_VECTOR_CONSTEXPR std::vector<Violation> check(const Schedule& schedule,
                                                       std::span<const GroupDescription> groups) {
    return detail::StepChecker(schedule, groups).check();
}
/// The same, and every place from which on the library's buffers take more than `limit` bytes on a rank: those that
/// `peak` counts, of the arena no more than the highest buffer in use needs. So the bytes are within the limit at
/// every operation exactly where peak(schedule, groups, optimizer_states) <= limit.
///     static_assert(check(schedule(), groups, ByteCount(80'000'000'000)).empty());
/// Cost:    and that of peak
SHARDKIT_VECTOR_CONSTEXPR std::vector<Violation> check(const Schedule& schedule,
                                                       std::span<const GroupDescription> groups, ByteCount limit,
                                                       std::size_t optimizer_states = 2) {
    const std::vector<Violation> of_order = check(schedule, groups);
    const std::vector<Violation> of_bytes = detail::over_limit(schedule, groups, limit, optimizer_states);
    std::vector<Violation> all;
    std::merge(of_order.begin(), of_order.end(), of_bytes.begin(), of_bytes.end(), std::back_inserter(all),
               [](const Violation& a, const Violation& b) { return a.operation < b.operation; });
    return all;
}

namespace detail {
inline void throw_first(const std::vector<Violation>& found, const Schedule& schedule,
                        std::span<const GroupDescription> groups, SourceLocation where) {
    if (found.empty()) { return; }
    throw_invalid_argument(where, "schedule: ", describe(found.front(), schedule, groups),
                           found.size() > 1 ? concat("; and ", found.size() - 1, " more") : "");
}
}  // namespace detail

/// Refuses a schedule that breaks a rule.
/// @throws std::invalid_argument that names the first operation, the group and the rule
inline void require_valid(const Schedule& schedule, std::span<const GroupDescription> groups,
                          SourceLocation where = SourceLocation::current()) {
    detail::throw_first(check(schedule, groups), schedule, groups, where);
}
/// And one whose buffers take more than `limit` bytes.
/// @throws std::invalid_argument likewise, of within_limit with the bytes that are held and the limit
inline void require_valid(const Schedule& schedule, std::span<const GroupDescription> groups, ByteCount limit,
                          std::size_t optimizer_states = 2, SourceLocation where = SourceLocation::current()) {
    detail::throw_first(check(schedule, groups, limit, optimizer_states), schedule, groups, where);
}

}  // namespace shardkit
