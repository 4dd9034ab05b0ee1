// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::schedule {

/// The seconds that a rank computes for one group.
struct GroupSeconds {
    double forward = 0;   ///< of one microbatch
    double backward = 0;  ///< of one microbatch
    double update = 0;    ///< of one step
};

/// The seconds of the acts on one batch of whole matrices: see batch_seconds.
struct BatchSeconds {
    double direct = 0;
    double to_owners = 0;
    double transform = 0;
    double from_owners = 0;
    double apply = 0;

    /// @pre is_of_batch(act)
    constexpr double of(Act act) const noexcept {
        return act == Act::direct        ? direct
               : act == Act::to_owners   ? to_owners
               : act == Act::transform   ? transform
               : act == Act::from_owners ? from_owners
                                         : apply;
    }
};

/// The machine's costs for a simulation.
struct StepCosts {
    std::span<const GroupSeconds> groups;  ///< one for each group of the model
    planner::TimeModel links{};
    engine::Traits engine{};
    double norm = 0;                                              ///< seconds of computation for a global norm
    std::span<const BatchSeconds> batches{};                      ///< one for each batch of whole matrices
    OptimizerStates optimizer_states = 2;                         ///< of which those of offloaded groups pass a link
    std::size_t offload_slot_bytes = default_offload_slot_bytes;  ///< RankOptions::offload_slot_bytes
};

}  // namespace shardkit::schedule

namespace shardkit::detail {

[[noreturn]] inline void throw_no_duration(const std::string& what, double seconds, SourceLocation where) {
    throw_invalid_argument(where, "simulate: the ", what, " takes ", number_text(seconds),
                           " s, expected a finite number >= 0");
}

/// Checks that durations and links are possible.
/// @throws std::invalid_argument
constexpr void require_possible(const schedule::StepCosts& costs, SourceLocation where) {
    const auto require = [&](double seconds, std::string_view what, std::string_view of, std::size_t number) {
        if (rules::not_negative.has(seconds)) { return; }
        throw_no_duration(of.empty() ? std::string(what) : concat(what, of, number), seconds, where);
    };
    require_possible(costs.links, where);
    for (std::size_t g = 0; g < costs.groups.size(); ++g) {
        require(costs.groups[g].forward, "forward pass", " of group ", g);
        require(costs.groups[g].backward, "backward pass", " of group ", g);
        require(costs.groups[g].update, "update", " of group ", g);
    }
    for (std::size_t b = 0; b < costs.batches.size(); ++b) {
        for (const Act act : batch_acts) { require(costs.batches[b].of(act), name(act), " of batch ", b); }
    }
    require(costs.norm, "norm", "", 0);
}

}  // namespace shardkit::detail
