// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/step_cursor.hpp>
#include <shardkit/follow/step_recorder.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/spi/step_observer.hpp>

// Defines what follow.hpp declares.

namespace shardkit::detail {
/// Checks that all ranks give the same schedules, for groups in the same order. All schedules are compared in one
/// exchange.
/// Order:   collective over the world; the host waits.
/// Cost:    24 bytes of each rank; where they differ, 24 bytes more for each operation.
/// @throws  UsageError, the same on every rank, which names two ranks that differ and their first different operation
inline void require_same_schedules(Rank& rank, std::span<const Schedule> schedules,
                                   std::span<const GroupDescription> groups, SourceLocation where) {
    if (rank.world_size() == 1) { return; }
    const engine::CallSite site{where, subject_of(rank.world(), "the ranks' schedules")};
    // Of an operation its act and lane, group and microbatch. What ends a schedule is no act.
    constexpr std::size_t numbers = 3;
    constexpr std::uint64_t no_act = 255;
    std::vector<std::uint64_t> operations;
    Fnv fnv;
    for (const Schedule& schedule : schedules) {
        fnv.add(schedule::hash(schedule));
        for (const schedule::Op& op : schedule.ops()) {
            const auto act_and_lane = static_cast<std::uint64_t>(op.lane) << 8U | static_cast<std::uint64_t>(op.act);
            operations.insert(operations.end(), {act_and_lane, op.group, op.microbatch});
        }
        operations.insert(operations.end(), {no_act, 0, 0});
    }
    for (const GroupDescription& group : groups) { fnv.add(group.path); }
    const std::array<std::uint64_t, 3> mine{fnv.hash, schedules.size(), operations.size()};
    const List<std::uint64_t> all = gather_values(rank, mine, site);
    const std::size_t other = first_apart(all, mine.size());
    if (other == rank.world_size()) { return; }
    const auto count = [&](std::size_t r) { return all[r * mine.size() + 1]; };
    if (count(0) != count(other)) {
        throw_usage_error(where, "follow: rank 0 has ", count(0), " schedules to choose from, rank ", other, " has ",
                          count(other));
    }
    std::uint64_t longest = 0;
    for (std::size_t i = 2; i < all.size(); i += mine.size()) { longest = std::max(longest, all[i]); }
    operations.resize(longest, no_act);
    const List<std::uint64_t> every = gather_values(rank, operations, site);
    const auto op_of = [&](std::size_t r, std::size_t at) {
        const std::uint64_t* const op = every.data() + r * longest + at * numbers;
        return schedule::Op{static_cast<Act>(op[0] & 255U), static_cast<std::uint32_t>(op[1]),
                            static_cast<std::uint32_t>(op[2]), static_cast<schedule::Lane>(op[0] >> 8U & 3U)};
    };
    const auto ends = [](const schedule::Op& op) { return op.act == static_cast<Act>(no_act); };
    std::size_t schedule = 0;
    std::size_t began = 0;  // first operation of that schedule
    std::size_t at = 0;
    for (; at < longest / numbers && op_of(0, at) == op_of(other, at); ++at) {
        if (!ends(op_of(0, at))) { continue; }
        ++schedule;
        began = at + 1;
    }
    if (at == longest / numbers) {
        throw_usage_error(where, "follow: rank 0 and rank ", other,
                          " have the same operations for groups of other paths or in another order");
    }
    const auto text = [&](std::size_t r) {
        const schedule::Op op = op_of(r, at);
        return ends(op) ? std::string("the end") : describe(op, groups);
    };
    throw_usage_error(where, "follow: the schedules of the ranks differ in operation ", at - began,
                      schedules.size() > 1 ? concat(" of schedule ", schedule) : std::string(), ": rank 0 has ",
                      text(0), ", rank ", other, " has ", text(other));
}
}  // namespace shardkit::detail

namespace shardkit::schedule SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Following::Following(std::unique_ptr<detail::StepCursor> cursor) noexcept
    : cursor_(std::move(cursor)) {}
SHARDKIT_CORE_INLINE Following::Following(Following&&) noexcept = default;
SHARDKIT_CORE_INLINE Following& Following::operator=(Following&&) noexcept = default;
SHARDKIT_CORE_INLINE Following::~Following() = default;
inline detail::StepCursor& Following::cursor(SourceLocation where) const {
    if (cursor_ == nullptr) { throw_usage_error(where, "a Following was used after it was moved from"); }
    return *cursor_;
}
SHARDKIT_CORE_INLINE ByteCount Following::arena_bytes(SourceLocation where) const {
    return cursor(where).arena_bytes();
}
SHARDKIT_CORE_INLINE std::size_t Following::schedules(SourceLocation where) const {
    return cursor(where).schedules();
}
SHARDKIT_CORE_INLINE std::size_t Following::choose(std::size_t schedule, SourceLocation where) {
    return cursor(where).choose(schedule, where);
}
SHARDKIT_CORE_INLINE void Following::measure(SourceLocation where) { cursor(where).measure(where); }
SHARDKIT_CORE_INLINE MeasuredStep Following::measured(SourceLocation where) const {
    return cursor(where).measured(where);
}

SHARDKIT_CORE_INLINE Following follow(const Model& model, std::span<const Schedule> schedules, SourceLocation where) {
    Rank& rank = detail::rank_of(model, where);
    require_argument(!schedules.empty(), where, "follow: no schedule given, expected at least one");
    std::vector<planner::GroupDescription> groups = describe_groups(model, where);
    detail::require_same_schedules(rank, schedules, groups, where);
    spi::require_unobserved(model, where);
    std::vector<detail::Group*> led;
    for (detail::Group& group : spi::groups(model, where)) {
        led.push_back(&group);
        if (group.geometry().table.releases) {
            refuse_group(group, where,
                         "follow of a group with GradientRelease::at_update, expected never: a step that "
                         "follows a schedule makes its updates together");
        }
    }
    auto cursor = std::make_unique<detail::StepCursor>(rank, std::move(groups), std::move(led), schedules, where);
    cursor->lead();
    return Following(std::move(cursor));
}
SHARDKIT_CORE_INLINE Following follow(const Model& model, const Schedule& schedule, SourceLocation where) {
    return follow(model, std::span<const Schedule>(&schedule, 1), where);
}

}  // namespace shardkit::schedule SHARDKIT_FACE
