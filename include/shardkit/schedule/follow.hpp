// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/measured_step.hpp>
#include <shardkit/schedule/record.hpp>
#include <shardkit/schedule/same_schedule.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/step_cursor.hpp>
#include <shardkit/schedule/step_stamps.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/plan_model.hpp>

namespace shardkit {

/// While this lives, every step of a model follows a schedule. Move-only; ends before the groups, and not while a
/// step is under way, or a window or gradients of one live on. One that was moved from refuses with a UsageError.
template <class Engine>
class Following {
  public:
    /// Bytes of the arena in which leased buffers lie.
    ByteCount arena_bytes(SourceLocation where = SourceLocation::current()) const {
        return cursor(where).arena_bytes();
    }
    std::size_t schedules(SourceLocation where = SourceLocation::current()) const {
        return cursor(where).schedules();
    }

    /// Which of several schedules the next steps follow: for what depends on data, as layers that are left out, or a
    /// last step with fewer microbatches. Every rank says the number that it wishes; the largest one is taken.
    /// Order:   collective over the world, between steps; the host waits.
    /// Cost:    8 bytes of each rank; where it changes the host waits for the last step's work
    /// @returns the number that is taken, the same on every rank
    /// @throws  std::invalid_argument when there is no such schedule; UsageError in a step
    std::size_t choose(std::size_t schedule, SourceLocation where = SourceLocation::current()) {
        return cursor(where).choose(schedule, where);
    }

    /// From the next step on, takes the time of each operation, on this rank. For engines whose streams are the
    /// host's.
    /// Cost:    memory, here, of seven moments an operation; then per operation four looks at the clock at most. A
    ///          step allocates nothing. Norm and updates wait for all reductions before they compute.
    /// @throws  UsageError in a step
    void measure(
        SourceLocation where = SourceLocation::current()) requires detail::TimedByHost<typename Engine::Stream> {
        cursor(where).measure(where);
    }
    /// The last step, as it was measured; between steps.
    /// Order:   local; the host waits for the streams.
    /// @throws  UsageError in a step, and unless the last step was measured and ran to its end
    MeasuredStep measured(SourceLocation where =
                              SourceLocation::current()) const requires detail::TimedByHost<typename Engine::Stream> {
        return cursor(where).measured(where);
    }

  private:
    friend detail::Access;
    explicit Following(std::unique_ptr<detail::StepCursor<Engine>> cursor) : cursor_(std::move(cursor)) {}

    detail::StepCursor<Engine>& cursor(SourceLocation where) const {
        if (cursor_ == nullptr) { throw_usage_error(where, "a Following was used after it was moved from"); }
        return *cursor_;
    }

    std::unique_ptr<detail::StepCursor<Engine>> cursor_;
};

namespace detail {
template <class Engine>
Following<Engine> follow(const Groups<Engine>& model, std::span<const Schedule> schedules, SourceLocation where) {
    Context<Engine>& context = model.context(where);
    if (schedules.empty()) { throw_invalid_argument(where, "follow: no schedule given, expected at least one"); }
    std::vector<GroupDescription> groups = describe_groups(model, where);
    require_same_schedules(context, schedules, groups, where);
    require_undirected(model, where);
    std::vector<Group<Engine>*> led;
    Access::walk(
        model, [&](Group<Engine>& group) { led.push_back(&group); }, where);
    auto cursor = std::make_unique<StepCursor<Engine>>(context, std::move(groups), std::move(led), schedules, where);
    cursor->lead();
    return Access::make<Following<Engine>>(std::move(cursor));
}
}  // namespace detail

/// From now on the model's steps follow the schedule: gathers and reductions are given to their streams where it
/// says, and a verb that is not its next operation is an error. The trainer stays as it is:
///     const Schedule schedule = prefetch(record(model, [&] { trainer.step(0); }), describe_groups(model), 1);
///     const auto following = follow(model, schedule);
///     for (...) { trainer.step(i); }
/// A step begins with its Accumulation and ends with the optimizer's step. Windows before and after, an evaluation's
/// say, are opened as without a schedule. After a step that an exception ends, or whose gradients are dropped, the
/// next one begins at the first operation. Results are those of the program without a schedule, bit for bit;
/// reduce_last alone adds in another order.
/// Order:   collective over the world; the host waits. Ranks compare their schedules here, once.
/// Memory:  arena_bytes(schedule, groups), instead of the slots of the rank's models. What is gathered outside of the
///          steps takes slots of its own.
/// Cost:    a step allocates nothing; a comparison for each operation
/// @throws  std::invalid_argument when the schedule breaks a rule, or has updates apart; UsageError, on every rank,
///          when ranks give different schedules, or one is followed already; MemoryError or std::bad_alloc when there
///          is no memory. Then, in a step: UsageError with the caller's line, the
///          operation that was expected and the verb that came; every rank fails, as in any other error of one rank
template <class Engine>
[[nodiscard]] Following<Engine> follow(const Groups<Engine>& model, const Schedule& schedule,
                                       SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, std::span<const Schedule>(&schedule, 1), where);
}

/// The same with a choice of schedules, from the first on; see Following::choose.
/// Memory:  the largest one's arena
/// @throws  std::invalid_argument when there is none
template <class Engine>
[[nodiscard]] Following<Engine> follow(const Groups<Engine>& model, std::span<const Schedule> schedules,
                                       SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, schedules, where);
}
/// The same: follow(model, {train, evaluate}).
template <class Engine>
[[nodiscard]] Following<Engine> follow(const Groups<Engine>& model, std::initializer_list<Schedule> schedules,
                                       SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, std::span<const Schedule>(schedules.begin(), schedules.size()), where);
}

}  // namespace shardkit
