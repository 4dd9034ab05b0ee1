// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/machine/step_rule.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::schedule {

/// An operation that breaks a rule. What is missing at the end of the step is reported behind the last operation.
struct Violation {
    StepRule rule{};
    std::size_t operation = 0;
    std::uint32_t group = 0;  ///< of a rule of batches: the batch

    friend constexpr bool operator==(const Violation&, const Violation&) noexcept = default;
};

/// Returns the violation as text: "operation 4 (add of 'blocks.0', microbatch 0) breaks zero_before_add: expected
/// ..."
inline std::string describe(const Violation& violation, const Schedule& schedule,
                            std::span<const planner::GroupDescription> groups) {
    const bool of_batch =
        violation.rule == StepRule::batches_in_order || violation.rule == StepRule::batches_in_slots;
    const std::string group = of_batch ? detail::concat("batch ", violation.group)
                              : violation.rule == StepRule::batches_before_updates ? std::string("whole matrices")
                              : violation.group < groups.size()
                                  ? detail::concat("'", groups[violation.group].path, "'")
                                  : detail::concat("group ", violation.group);
    const std::string place = violation.operation < schedule.size()
                                  ? detail::concat("operation ", violation.operation, " (",
                                                   describe(schedule[violation.operation], groups), ")")
                                  : std::string("the end of the step");
    return detail::concat(place, " breaks ", name(violation.rule), " of ", group, ": ", sentence(violation.rule));
}

}  // namespace shardkit::schedule

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
                for (std::size_t g = 0; g < step_.size(); ++g) { add(step_.apply(op.act, g, 0).broken, g); }
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
/// Checks that a schedule breaks no rule.
/// @throws std::invalid_argument that names the first operation, the group and the rule
inline void require_valid(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                          SourceLocation where = SourceLocation::current()) {
    const std::vector<Violation> found = check(schedule, groups);
    if (found.empty()) { return; }
    throw_invalid_argument(where, "schedule: ", describe(found.front(), schedule, groups),
                           found.size() > 1 ? detail::concat("; and ", found.size() - 1, " more") : "");
}

}  // namespace shardkit::schedule
