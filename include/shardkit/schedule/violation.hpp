// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <shardkit/core/counts.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/plan/step_rule.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit {

/// An operation that breaks a rule. What is missing at the end is told of an operation behind the last.
struct Violation {
    StepRule rule{};
    std::size_t operation = 0;
    std::uint32_t group = 0;
    ByteCount held{};   ///< of within_limit: the library's buffers, with the arena up to the last byte in use
    ByteCount limit{};  ///< likewise: what was given

    friend constexpr bool operator==(const Violation&, const Violation&) noexcept = default;
};

/// "operation 4 (add of 'blocks.0', microbatch 0) breaks zero_before_add: expected ..."
inline std::string describe(const Violation& violation, const Schedule& schedule,
                            std::span<const GroupDescription> groups) {
    const std::string group = violation.group < groups.size() ? detail::concat("'", groups[violation.group].path, "'")
                                                              : detail::concat("group ", violation.group);
    const std::string place = violation.operation < schedule.size()
                                  ? detail::concat("operation ", violation.operation, " (",
                                                   describe(schedule[violation.operation], groups), ")")
                                  : std::string("the end of the step");
    const std::string bytes =
        violation.rule == StepRule::within_limit
            ? detail::concat(": ", violation.held.value, " bytes held, limit ", violation.limit.value)
            : std::string();
    return detail::concat(place, " breaks ", name(violation.rule), " of ", group, ": ", sentence(violation.rule),
                          bytes);
}

}  // namespace shardkit
