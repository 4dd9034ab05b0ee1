// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail {
class StepCursor;
}

namespace shardkit::schedule SHARDKIT_FACE {

/// Makes every step of a model follow a schedule as long as it lives. Move-only. It must end before the groups, and
/// not during a step or while a window or gradients of one exist. After a move from it, its functions throw a
/// UsageError.
class Following {
  public:
    explicit Following(std::unique_ptr<detail::StepCursor> cursor) noexcept;
    Following(Following&& other) noexcept;
    Following& operator=(Following&& other) noexcept;
    ~Following();

    /// Returns the bytes of the arena that holds the leased buffers.
    ByteCount arena_bytes(SourceLocation where = SourceLocation::current()) const;
    std::size_t schedules(SourceLocation where = SourceLocation::current()) const;

    /// Chooses which of several schedules the next steps follow, where this depends on data: for layers that are left
    /// out, or a last step with fewer microbatches. Each rank passes the number that it needs, and the largest one is
    /// taken.
    /// Order:   collective over the world, between steps; the host waits.
    /// Cost:    8 bytes of each rank; at a change the host waits for the last step's work
    /// @returns the number that was taken, the same on every rank
    /// @throws  std::invalid_argument when there is no such schedule; UsageError during a step
    std::size_t choose(std::size_t schedule, SourceLocation where = SourceLocation::current());

    /// Measures the time of each operation on this rank, from the next step on. Where the engine's memory is a
    /// device's, the times are of its streams: of the compute stream between two verbs, of collectives in theirs. A
    /// step that is captured into a graph has none.
    /// Cost:    allocates seven timestamps, or events, for each operation here; a step allocates nothing, and reads
    ///          the clock at most four times for each operation, or records at most seven events. Norm and updates
    ///          wait for all reductions before they compute.
    /// @throws  UsageError during a step
    void measure(SourceLocation where = SourceLocation::current());
    /// Returns the times of the last step. Call it between steps.
    /// Order:   local; the host waits for the streams.
    /// @throws  UsageError during a step, and unless the last step was measured and completed
    MeasuredStep measured(SourceLocation where = SourceLocation::current()) const;

  private:
    detail::StepCursor& cursor(SourceLocation where) const;

    std::unique_ptr<detail::StepCursor> cursor_;
};

/// Makes the model's steps follow the schedule from now on. Gathers and reductions are given to their streams where
/// it says, and a verb that is not its next operation is an error. The trainer stays unchanged:
///     const Schedule schedule = prefetch(record(model, [&] { trainer.step(0); }), describe_groups(model), 1);
///     const auto following = follow(model, schedule);
///     for (...) { trainer.step(i); }
/// A step begins with its Accumulation and ends with the optimizer's step. Windows before and after it, as in an
/// evaluation, work as without a schedule. After a step that ended with an exception, or whose gradients were
/// dropped, the next step begins at the first operation. Results are those of the program without a schedule, bit for
/// bit; only reduce_last adds in another order.
/// Order:   collective over the world; the host waits. Ranks compare their schedules here, once.
/// Memory:  arena_bytes(schedule, groups), instead of the slots of the rank's models. Gathers outside of steps use
///          slots of their own.
/// Cost:    a step allocates nothing, and makes a comparison for each operation
/// @throws  std::invalid_argument when the schedule breaks a rule or its updates are not together; UsageError, on
///          every rank, when ranks give different schedules, or one is followed already; MemoryError or
///          std::bad_alloc when there is no memory. Later, during a step: UsageError with the caller's line, the
///          expected operation and the verb that was called; every rank fails, as after any other error of one rank
[[nodiscard]] Following follow(const Model& model, const Schedule& schedule,
                               SourceLocation where = SourceLocation::current());

/// Makes the model's steps follow one of several schedules, at first the first one; see Following::choose.
/// Memory:  the arena of the largest one
/// @throws  std::invalid_argument when `schedules` is empty
[[nodiscard]] Following follow(const Model& model, std::span<const Schedule> schedules,
                               SourceLocation where = SourceLocation::current());
/// Makes the model's steps follow one of several schedules: follow(model, {train, evaluate}).
[[nodiscard]] inline Following follow(const Model& model, std::initializer_list<Schedule> schedules,
                                      SourceLocation where = SourceLocation::current()) {
    return follow(model, std::span<const Schedule>(schedules.begin(), schedules.size()), where);
}

/// Returns the measured steps of all ranks, by rank, for `trace`. `together`: a moment that is the same on all ranks,
/// as behind a barrier before the step; their clocks may differ.
/// Order:   collective over the world; the host waits.
std::vector<MeasuredStep> gather_steps(Rank& rank, const MeasuredStep& mine,
                                       std::chrono::steady_clock::time_point together,
                                       SourceLocation where = SourceLocation::current());

}  // namespace shardkit::schedule SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/follow/follow_members.hpp>
#include <shardkit/follow/gather_steps.hpp>
#endif
