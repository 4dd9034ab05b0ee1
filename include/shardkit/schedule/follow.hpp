// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/record.hpp>
#include <shardkit/schedule/same_schedule.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/step_cursor.hpp>
#include <shardkit/step/groups.hpp>

namespace shardkit {

/// While this lives, every step of a model follows a schedule. Move-only; ends before the groups, and not while a
/// step is under way.
template <class Engine>
class Following {
  public:
    /// Operations of the schedule, and the bytes of the arena in which its leased buffers lie.
    std::size_t operations() const noexcept { return cursor_->operations(); }
    ByteCount arena_bytes() const noexcept { return cursor_->arena_bytes(); }

  private:
    friend detail::Access;
    explicit Following(std::unique_ptr<detail::StepCursor<Engine>> cursor) : cursor_(std::move(cursor)) {}

    std::unique_ptr<detail::StepCursor<Engine>> cursor_;
};

/// From now on the model's steps follow the schedule: gathers and reductions are given to the communication stream
/// where it says, and a verb that is not its next operation is an error. The trainer stays as it is:
///     const Schedule schedule = prefetch(record(model, [&] { trainer.step(0); }), describe_groups(model), 1);
///     const auto following = follow(model, schedule);
///     for (...) { trainer.step(i); }
/// A step begins with its Accumulation and ends with the optimizer's step. Windows before and after, an evaluation's
/// say, are opened as without a schedule. A step that is abandoned by an exception, or whose gradients are dropped,
/// leaves the next one to begin anew. Results are those of the program without a schedule, bit for bit; reduce_last
/// alone adds in another order.
/// Order:   collective over the world; the host waits. Ranks compare their schedules here, once.
/// Memory:  arena_bytes(schedule, groups), instead of the slots of the rank's models. What is gathered outside of the
///          steps takes slots anew.
/// Cost:    a step allocates nothing; below 1 us an operation beside the communication itself
/// @throws  std::invalid_argument when the schedule breaks a rule, or has updates apart from each other
/// (update_early);
///          UsageError, on every rank, when ranks give different schedules, or one is followed already; MemoryError
///          or std::bad_alloc when there is no memory. Then, in a step: UsageError with the caller's line, the
///          operation that was expected and the verb that came; every rank fails, as in any other error of one rank
template <class... T>
[[nodiscard]] auto follow(const Groups<T...>& model, const Schedule& schedule,
                          SourceLocation where = SourceLocation::current()) {
    auto& context = model.context(where);
    using Engine = EngineOf<decltype(context)>;
    std::vector<GroupDescription> groups = describe_groups(model);
    detail::require_same_schedule(context, schedule, groups, where);
    detail::require_undirected(model, where);
    std::vector<detail::LedGroup> led;
    model.for_each([&](auto& layer) { led.push_back(detail::LedGroup::of(detail::Access::state(layer))); });
    auto cursor =
        std::make_unique<detail::StepCursor<Engine>>(context, std::move(groups), std::move(led), schedule, where);
    cursor->lead();
    return detail::Access::make<Following<Engine>>(std::move(cursor));
}

}  // namespace shardkit
