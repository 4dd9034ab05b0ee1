// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <shardkit/core/counts.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/schedule/schedule.hpp>

#include "options.hpp"

namespace train_gpt {

/// What --schedule makes of a step.
struct ChosenSchedule {
    std::optional<shardkit::Schedule> schedule;  ///< that each step follows; none where each verb communicates itself
    std::string follows = "none";                ///< in words: none, keep_gathered, prefetch:1, or the latter two
    std::string why = "asked for";               ///< that and nothing else
    bool ahead = false;                          ///< communication is given to its stream before the program waits
};

/// What a step may take of the library's buffers on a rank.
struct StepMemory {
    std::size_t optimizer_states = 2;
    shardkit::ByteCount none;  ///< what the step takes without a schedule
    shardkit::ByteCount most;
    bool limited = false;  ///< `most` is what --memory-limit leaves
};

/// none: nothing is followed. prefetch:N: gathers start N windows ahead; where memory is limited, what fits of that.
/// auto: of the step without a schedule, one whose groups stay gathered, and, where the engine communicates beside
/// the computation, one whose gathers start a window ahead: that which waits least for communication in `simulate`,
/// within `most`. Where none waits less than the step without a schedule, that. The simulation takes nominal speeds
/// (see the source), so that a choice depends on the options alone and is the same on every rank.
/// `step`: what the trainer does, which fits `most`.
ChosenSchedule choose_schedule(const Options& options, const shardkit::Schedule& step,
                               std::span<const shardkit::GroupDescription> groups, const shardkit::AxisGrid& mesh,
                               const shardkit::EngineTraits& engine, const StepMemory& memory);

}  // namespace train_gpt
