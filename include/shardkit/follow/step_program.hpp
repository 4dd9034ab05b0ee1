// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/schedule/check.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>

namespace shardkit::detail {

/// A schedule prepared for running: each operation with the slots that it takes and releases.
struct StepProgram {
    static constexpr std::size_t none = ScheduledSlot::none;
    struct Step {
        schedule::Op op;
        std::size_t takes = none;  ///< a slot; for a reduction its addend
        std::size_t gives_back = none;
    };

    std::vector<Step> steps;
    SlotPlan plan;
    std::vector<std::uint32_t> microbatches;  ///< how many the step adds, by group

    /// @throws std::invalid_argument when the schedule breaks a rule, or needs what an optimizer's step cannot do
    StepProgram(const Schedule& schedule, std::span<const GroupDescription> groups, SourceLocation where)
        : plan(plan_slots(schedule, groups)), microbatches(groups.size()) {
        schedule::require_valid(schedule, groups, where);
        require_updates_together(schedule, groups, where);
        ModelStep step(groups);
        for (const schedule::Op& op : schedule.ops()) {
            if (schedule::is_of_group(op.act)) {
                microbatches[op.group] = step.apply(op.act, op.group, op.microbatch).next.added;
            }
            steps.push_back({op});
        }
        for (std::size_t s = 0; s < plan.slots.size(); ++s) {
            const ScheduledSlot& slot = plan.slots[s];
            steps[slot.begin].takes = s;
            if (slot.use != SlotUse::addend) { steps[slot.end].gives_back = s; }
        }
    }

  private:
    /// Checks the updates: an optimizer's step makes all of them in one call, in the model's order, and only gathers
    /// follow.
    static void require_updates_together(const Schedule& schedule, std::span<const GroupDescription> groups,
                                         SourceLocation where) {
        std::size_t last = none;
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const bool update = schedule[i].act == Act::update;
            const bool behind = last == none || (update ? last + 1 == i && schedule[last].group < schedule[i].group
                                                        : schedule[i].act == Act::gather);
            if (!behind) {
                throw_invalid_argument(where, "follow: operation ", i, " (", describe(schedule[i], groups),
                                       ") stands behind operation ", last, " (", describe(schedule[last], groups),
                                       "); expected the updates together and in the groups' order, as an "
                                       "optimizer's step makes them, and behind them gathers only");
            }
            if (update) { last = i; }
        }
    }
};

/// Returns the act as the verb that the program calls.
constexpr std::string_view verb_of(Act act) noexcept {
    return act == Act::use      ? "unshard"
           : act == Act::close  ? "reshard"
           : act == Act::zero   ? "gradients"
           : act == Act::norm   ? "global_norm"
           : act == Act::update ? "step"
                                : name(act);
}
/// Returns operation `at` as text, as the program calls it: "reshard of 'b' in microbatch 0".
inline std::string operation_text(const StepProgram& program, std::size_t at,
                                  std::span<const GroupDescription> groups) {
    if (at >= program.steps.size()) { return "the end of the step"; }
    const schedule::Op& op = program.steps[at].op;
    if (op.act == Act::norm) { return std::string(verb_of(op.act)); }
    if (schedule::is_of_batch(op.act)) { return describe(op, groups); }
    const std::string text = concat(verb_of(op.act), " of '", groups[op.group].path, "'");
    return op.act == Act::update ? text : concat(text, " in microbatch ", op.microbatch);
}

}  // namespace shardkit::detail
