// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <shardkit/core/counts.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/muon/matrix_plan.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/rank/rank_options.hpp>
#include <shardkit/schedule/schedule.hpp>

#include "options.hpp"

namespace train_gpt {

/// What --schedule makes of a step.
struct ChosenSchedule {
    std::optional<shardkit::Schedule> schedule;  ///< that each step follows; none where each verb communicates itself
    std::string follows = "none";                ///< in words: none, keep_gathered, prefetch:1, or the latter two
    std::string why = "asked for";               ///< why this and no other
    bool ahead = false;                          ///< communication is given to its stream before the program waits
};

/// Of a rank whose steps follow a schedule the buffers that windows share serve between the steps alone.
inline shardkit::RankOptions rank_options(const ChosenSchedule& chosen) {
    return {.in_flight = chosen.schedule ? 1U : 2U};
}

/// What a step may take of the library's buffers on a rank.
struct StepMemory {
    shardkit::OptimizerStates optimizer_states = 2;
    shardkit::ByteCount none;  ///< what the step takes without a schedule
    shardkit::ByteCount most;
    bool limited = false;  ///< `most` is what --memory-limit leaves
};

/// Chooses the schedule that steps follow. none: no schedule. prefetch:N: gathers start N windows ahead; where memory
/// is limited, as many of them as fit. auto: the one that waits least for communication in `simulate`, within `most`,
/// of these: the step without a schedule; one whose groups stay gathered; and, where the engine communicates beside
/// the computation, ones whose gathers start a window ahead. The simulation takes nominal speeds (see the source), so
/// that a choice depends on the options alone and is the same on every rank.
/// `step`: what the trainer does, which fits `most`; `matrices`: of its optimizer, if it has whole ones.
ChosenSchedule choose_schedule(const Options& options, const shardkit::Schedule& step,
                               std::span<const shardkit::planner::GroupDescription> groups,
                               const shardkit::AxisGrid& mesh, const shardkit::engine::Traits& engine,
                               const StepMemory& memory, const shardkit::planner::MatrixPlan& matrices);

}  // namespace train_gpt
