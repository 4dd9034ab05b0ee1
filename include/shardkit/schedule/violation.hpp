// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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
