// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>
#include <shardkit/schedule/slots.hpp>
#include <shardkit/schedule/violation.hpp>

namespace shardkit::detail {

/// Checks one step that begins in the state in which the step before it ended.
class StepChecker {
  public:
    SHARDKIT_CONSTEXPR_VECTOR StepChecker(const Schedule& schedule, std::span<const GroupDescription> groups)
        : schedule_(schedule), step_(groups), has_update_(filled(groups.size(), char{0})) {
        for (const schedule::Op& op : schedule.ops()) {
            if (op.act == Act::update && op.group < groups.size()) { has_update_[op.group] = 1; }
        }
    }

    SHARDKIT_CONSTEXPR_VECTOR std::vector<schedule::Violation> check() {
        pass();  // a first step, to reach the steady state
        found_.clear();
        pass();
        return found_;
    }

  private:
    constexpr void pass() {
        bool updates = false;
        step_.batches().begin();
        for (at_ = 0; at_ < schedule_.size(); ++at_) {
            const schedule::Op& op = schedule_[at_];
            if (schedule::is_of_batch(op.act)) {
                add(step_.batches().apply(op.act, op.microbatch).broken, op.microbatch);
            }
            if (op.act == Act::norm || op.act == Act::direct) {
                if (updates && op.act == Act::norm) { found_.push_back({StepRule::norm_before_updates, at_, 0}); }
                for (std::size_t g = 0; g < step_.size(); ++g) { add(step_.apply(op.act, g).broken, g); }
            } else if (schedule::is_of_batch(op.act)) {
                continue;
            } else if (op.group >= step_.size()) {
                found_.push_back({StepRule::group_exists, at_, op.group});
            } else {
                if (op.act == Act::update && !updates) { add(step_.batches().apply_updates(), 0); }
                updates = updates || op.act == Act::update;
                add(step_.apply(op.act, op.group, op.microbatch).broken, op.group);
            }
        }
        if (!updates) { add(step_.batches().apply_updates(), 0); }
        for (std::size_t g = 0; g < step_.size(); ++g) {
            const Applied ended = apply_end(step_[g], step_.rows(g), updates);
            add(ended.broken, g);
            step_[g] = ended.next;
            // Without an update in this step, the copy is taken to be stale: a step in between may have updated it.
            if (has_update_[g] == 0) { step_[g].current = step_.rows(g).rests_current(); }
        }
    }
    constexpr void add(const BrokenRules& broken, std::size_t group) {
        for (const StepRule rule : broken) { found_.push_back({rule, at_, static_cast<std::uint32_t>(group)}); }
    }

    const Schedule& schedule_;
    ModelStep step_;
    std::vector<char> has_update_;
    std::vector<schedule::Violation> found_;
    std::size_t at_ = 0;
};

/// Finds each stretch of operations where the bytes that `peak` counts exceed `limit`, and returns its first
/// operation. The arena is counted up to the end of the highest buffer in use.
SHARDKIT_CONSTEXPR_VECTOR std::vector<schedule::Violation> over_limit(const Schedule& schedule,
                                                                      std::span<const GroupDescription> groups,
                                                                      ByteCount limit,
                                                                      OptimizerStates optimizer_states) {
    const ByteCount resting = resting_bytes(schedule, groups, optimizer_states);
    const SlotPlan plan = place_slots(slots_of(schedule, groups));
    const auto held_with = [&](const ScheduledSlot& slot) { return resting + ByteCount(slot.offset + slot.bytes); };
    std::vector<schedule::Violation> found;
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

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Returns every place where a schedule breaks a rule of a step, in order; none if it can be followed. A step begins
/// in the state in which the step before it ended: what is gathered after the updates is current in the next step. A
/// step without updates, as an evaluation, may follow one that trains: its gathered copies begin stale.
///     static_assert(check(schedule(), groups).empty());
/// Cost:    operations times groups at most; works in constant expressions
SHARDKIT_CONSTEXPR_VECTOR std::vector<Violation> check(const Schedule& schedule,
                                                       std::span<const planner::GroupDescription> groups) {
    return detail::StepChecker(schedule, groups).check();
}
/// Returns the same, and every place from which on the library's buffers exceed `limit` bytes on a rank. They are the
/// ones that `peak` counts, with the arena up to the end of the highest buffer in use. The bytes are within the limit
/// at every operation if and only if peak(schedule, groups, optimizer_states) <= limit.
///     static_assert(check(schedule(), groups, ByteCount(80'000'000'000)).empty());
/// Cost:    that of the check without a limit, and that of peak
SHARDKIT_CONSTEXPR_VECTOR std::vector<Violation> check(const Schedule& schedule,
                                                       std::span<const planner::GroupDescription> groups,
                                                       ByteCount limit, OptimizerStates optimizer_states = 2) {
    const std::vector<Violation> of_order = check(schedule, groups);
    const std::vector<Violation> of_bytes = detail::over_limit(schedule, groups, limit, optimizer_states);
    std::vector<Violation> all;
    std::merge(of_order.begin(), of_order.end(), of_bytes.begin(), of_bytes.end(), std::back_inserter(all),
               [](const Violation& a, const Violation& b) { return a.operation < b.operation; });
    return all;
}

}  // namespace shardkit::schedule

namespace shardkit::detail {
inline void throw_first(const std::vector<schedule::Violation>& found, const Schedule& schedule,
                        std::span<const GroupDescription> groups, SourceLocation where) {
    if (found.empty()) { return; }
    throw_invalid_argument(where, "schedule: ", describe(found.front(), schedule, groups),
                           found.size() > 1 ? concat("; and ", found.size() - 1, " more") : "");
}
}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Checks that a schedule breaks no rule.
/// @throws std::invalid_argument that names the first operation, the group and the rule
inline void require_valid(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                          SourceLocation where = SourceLocation::current()) {
    detail::throw_first(check(schedule, groups), schedule, groups, where);
}
/// Checks also that its buffers fit in `limit` bytes.
/// @throws std::invalid_argument likewise; for within_limit with the bytes held and the limit
inline void require_valid(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                          ByteCount limit, OptimizerStates optimizer_states = 2,
                          SourceLocation where = SourceLocation::current()) {
    detail::throw_first(check(schedule, groups, limit, optimizer_states), schedule, groups, where);
}

}  // namespace shardkit::schedule
