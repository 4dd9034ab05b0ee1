// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/follow/step_cursor.hpp>
#include <shardkit/follow/step_stamps.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/rank/gather_values.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::schedule {

/// Makes every step of a model follow a schedule as long as it lives. Move-only. It must end before the groups, and
/// not during a step or while a window or gradients of one exist. After a move from it, its functions throw a
/// UsageError.
class Following {
  public:
    /// Returns the bytes of the arena that holds the leased buffers.
    ByteCount arena_bytes(SourceLocation where = SourceLocation::current()) const {
        return cursor(where).arena_bytes();
    }
    std::size_t schedules(SourceLocation where = SourceLocation::current()) const {
        return cursor(where).schedules();
    }

    /// Chooses which of several schedules the next steps follow, where this depends on data: for layers that are left
    /// out, or a last step with fewer microbatches. Each rank passes the number that it needs, and the largest one is
    /// taken.
    /// Order:   collective over the world, between steps; the host waits.
    /// Cost:    8 bytes of each rank; at a change the host waits for the last step's work
    /// @returns the number that was taken, the same on every rank
    /// @throws  std::invalid_argument when there is no such schedule; UsageError during a step
    std::size_t choose(std::size_t schedule, SourceLocation where = SourceLocation::current()) {
        return cursor(where).choose(schedule, where);
    }

    /// Measures the time of each operation on this rank, from the next step on. Where the engine's memory is a
    /// device's, the times are of its streams: of the compute stream between two verbs, of collectives in theirs. A
    /// step that is captured into a graph has none.
    /// Cost:    allocates seven timestamps, or events, for each operation here; a step allocates nothing, and reads
    ///          the clock at most four times for each operation, or records at most seven events. Norm and updates
    ///          wait for all reductions before they compute.
    /// @throws  UsageError during a step
    void measure(SourceLocation where = SourceLocation::current()) { cursor(where).measure(where); }
    /// Returns the times of the last step. Call it between steps.
    /// Order:   local; the host waits for the streams.
    /// @throws  UsageError during a step, and unless the last step was measured and completed
    MeasuredStep measured(SourceLocation where = SourceLocation::current()) const {
        return cursor(where).measured(where);
    }

  private:
    friend detail::Access;
    explicit Following(std::unique_ptr<detail::StepCursor> cursor) : cursor_(std::move(cursor)) {}

    detail::StepCursor& cursor(SourceLocation where) const {
        if (cursor_ == nullptr) { throw_usage_error(where, "a Following was used after it was moved from"); }
        return *cursor_;
    }

    std::unique_ptr<detail::StepCursor> cursor_;
};

}  // namespace shardkit::schedule

namespace shardkit::detail {
/// Packs an operation into an integer that a double holds exactly: 4 bits of the act, 2 of the lane, 20 of the group,
/// 26 of the microbatch.
inline double packed(const schedule::Op& op) noexcept {
    const std::uint64_t bits = (std::uint64_t{op.microbatch} & 0x3FF'FFFFU) << 26U |
                               (std::uint64_t{op.group} & 0xF'FFFFU) << 6U |
                               static_cast<std::uint64_t>(op.lane) << 4U | static_cast<std::uint64_t>(op.act);
    return static_cast<double>(bits + 1);
}
inline constexpr double packed_end = 0;  // marks the end of a schedule
inline schedule::Op unpacked(double value) noexcept {
    const auto bits = static_cast<std::uint64_t>(value) - 1;
    return {static_cast<Act>(bits & 15U), static_cast<std::uint32_t>(bits >> 6U & 0xF'FFFFU),
            static_cast<std::uint32_t>(bits >> 26U), static_cast<schedule::Lane>(bits >> 4U & 3U)};
}

/// Checks that all ranks give the same schedules, for groups in the same order. All schedules are compared in one
/// exchange.
/// Order:   collective over the world; the host waits.
/// Cost:    24 bytes of each rank; where they differ, 8 bytes more for each operation.
/// @throws  UsageError, the same on every rank, which names two ranks that differ and their first different operation
inline void require_same_schedules(Rank& rank, std::span<const Schedule> schedules,
                                   std::span<const GroupDescription> groups, SourceLocation where) {
    if (rank.world_size() == 1) { return; }
    const engine::CallSite site{where, subject_of(rank.world(), "the ranks' schedules")};
    std::vector<double> operations;
    Fnv fnv;
    for (const Schedule& schedule : schedules) {
        fnv.add(schedule::hash(schedule));
        for (const schedule::Op& op : schedule.ops()) { operations.push_back(packed(op)); }
        operations.push_back(packed_end);
    }
    for (const GroupDescription& group : groups) { fnv.add(group.path); }
    const std::array<double, 3> mine{static_cast<double>(fnv.hash >> 12U), static_cast<double>(schedules.size()),
                                     static_cast<double>(operations.size())};
    const List<double> all = gather_values(rank, mine, site);
    const std::size_t other = first_apart(all, mine.size());
    if (other == rank.world_size()) { return; }
    const auto count = [&](std::size_t r) { return static_cast<std::size_t>(all[r * mine.size() + 1]); };
    if (count(0) != count(other)) {
        throw_usage_error(where, "follow: rank 0 has ", count(0), " schedules to choose from, rank ", other, " has ",
                          count(other));
    }
    double longest = 0;
    for (std::size_t i = 2; i < all.size(); i += mine.size()) { longest = std::max(longest, all[i]); }
    operations.resize(static_cast<std::size_t>(longest), packed_end);
    const List<double> every = gather_values(rank, operations, site);
    const double* const first = every.data();
    const double* const second = first + other * operations.size();
    std::size_t schedule = 0;
    std::size_t began = 0;  // first operation of that schedule
    std::size_t at = 0;
    for (; at < operations.size() && first[at] == second[at]; ++at) {
        if (first[at] != packed_end) { continue; }
        ++schedule;
        began = at + 1;
    }
    if (at == operations.size()) {
        throw_usage_error(where, "follow: rank 0 and rank ", other,
                          " have the same operations for groups of other paths or in another order");
    }
    const auto text = [&](double op) {
        return op == packed_end ? std::string("the end") : describe(unpacked(op), groups);
    };
    throw_usage_error(where, "follow: the schedules of the ranks differ in operation ", at - began,
                      schedules.size() > 1 ? concat(" of schedule ", schedule) : std::string(), ": rank 0 has ",
                      text(first[at]), ", rank ", other, " has ", text(second[at]));
}

inline schedule::Following follow(const Model& model, std::span<const Schedule> schedules, SourceLocation where) {
    Rank& rank = detail::rank_of(model, where);
    if (schedules.empty()) { throw_invalid_argument(where, "follow: no schedule given, expected at least one"); }
    std::vector<GroupDescription> groups = describe_groups(model, where);
    require_same_schedules(rank, schedules, groups, where);
    require_undirected(model, where);
    std::vector<Group*> led;
    for (Group& group : Access::each(model, where)) {
        led.push_back(&group);
        if (group.geometry().table.releases) {
            group.refuse_group(where,
                               "follow of a group with GradientRelease::at_update, expected never: a step that "
                               "follows a schedule makes its updates together");
        }
    }
    auto cursor = std::make_unique<StepCursor>(rank, std::move(groups), std::move(led), schedules, where);
    cursor->lead();
    return Access::make<schedule::Following>(std::move(cursor));
}
}  // namespace shardkit::detail

namespace shardkit::schedule {

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
[[nodiscard]] inline Following follow(const Model& model, const Schedule& schedule,
                                      SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, std::span<const Schedule>(&schedule, 1), where);
}

/// Makes the model's steps follow one of several schedules, at first the first one; see Following::choose.
/// Memory:  the arena of the largest one
/// @throws  std::invalid_argument when `schedules` is empty
[[nodiscard]] inline Following follow(const Model& model, std::span<const Schedule> schedules,
                                      SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, schedules, where);
}
/// Makes the model's steps follow one of several schedules: follow(model, {train, evaluate}).
[[nodiscard]] inline Following follow(const Model& model, std::initializer_list<Schedule> schedules,
                                      SourceLocation where = SourceLocation::current()) {
    return detail::follow(model, std::span<const Schedule>(schedules.begin(), schedules.size()), where);
}

}  // namespace shardkit::schedule
