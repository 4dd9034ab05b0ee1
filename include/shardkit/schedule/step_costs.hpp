// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/cost.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>
#include <shardkit/detail/number_text.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/state_format.hpp>

namespace shardkit {

/// The seconds that a rank computes for one group.
struct GroupSeconds {
    double forward = 0;   ///< of one microbatch
    double backward = 0;  ///< of one microbatch
    double update = 0;    ///< of one step
};

/// The machine's costs for a simulation.
struct StepCosts {
    std::span<const GroupSeconds> groups;  ///< one for each group of the model
    TimeModel links{};
    EngineTraits engine{};
    double norm = 0;                                              ///< seconds of computation for a global norm
    OptimizerStates optimizer_states = 2;                         ///< of which those of offloaded groups pass a link
    std::size_t offload_slot_bytes = default_offload_slot_bytes;  ///< RankOptions::offload_slot_bytes
};

namespace detail {

[[noreturn]] inline void throw_no_duration(std::string_view what, std::string_view of_group, double seconds,
                                           SourceLocation where) {
    throw_invalid_argument(where, "simulate: the ", what, of_group, " takes ", number_text(seconds),
                           " s, expected a finite number >= 0");
}
/// Checks that durations and links are possible.
/// @throws std::invalid_argument
constexpr void require_possible(const StepCosts& costs, SourceLocation where) {
    require_possible(costs.links, where);
    for (std::size_t g = 0; g < costs.groups.size(); ++g) {
        const GroupSeconds& its = costs.groups[g];
        if (!is_not_negative(its.forward)) {
            throw_no_duration("forward pass of group ", std::to_string(g), its.forward, where);
        }
        if (!is_not_negative(its.backward)) {
            throw_no_duration("backward pass of group ", std::to_string(g), its.backward, where);
        }
        if (!is_not_negative(its.update)) {
            throw_no_duration("update of group ", std::to_string(g), its.update, where);
        }
    }
    if (!is_not_negative(costs.norm)) { throw_no_duration("norm", "", costs.norm, where); }
}

}  // namespace detail

}  // namespace shardkit
