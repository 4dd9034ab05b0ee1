// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>

namespace shardkit::detail {

/// Returns the bytes that the groups, an optimizer with that many states and the norm hold permanently.
constexpr ByteCount resting_bytes(const Schedule& schedule, std::span<const GroupDescription> groups,
                                  OptimizerStates optimizer_states) {
    planner::PlanOptions options{.optimizer_states = optimizer_states, .norms_per_step = 0};
    for (const schedule::Op& op : schedule.ops()) { options.norms_per_step += op.act == Act::norm ? 1U : 0U; }
    return resting_memory(groups, options).total();
}
/// Returns the leased bytes that exist during each operation.
SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> bytes_held(const Schedule& schedule,
                                                              std::span<const ScheduledSlot> slots) {
    std::vector<std::size_t> taken = filled(schedule.size(), std::size_t{0});
    std::vector<std::size_t> given_back = taken;
    for (const ScheduledSlot& slot : slots) {
        taken[slot.begin] += slot.bytes;
        given_back[slot.end] += slot.bytes;
    }
    std::size_t now = 0;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        now += taken[i];
        taken[i] = now;
        now -= given_back[i];
    }
    return taken;
}

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Returns the bytes of the arena for a schedule's gathered parameters, full gradients and addends. Buffers of any
/// sizes share it while they are needed, and each has the same address in every step.
/// Cost:    close to a sort of the buffers where sizes repeat; works in constant expressions
/// @throws  std::invalid_argument when the schedule has a group that is not described
SHARDKIT_CONSTEXPR_VECTOR ByteCount arena_bytes(const Schedule& schedule,
                                                std::span<const planner::GroupDescription> groups,
                                                SourceLocation where = SourceLocation::current()) {
    detail::require_described(schedule, groups, where);
    return ByteCount(detail::place_slots(detail::slots_of(schedule, groups)).arena_bytes);
}
/// Returns the bytes of the library's buffers on one rank while it follows the schedule: what the groups, an
/// optimizer with that many states and the norm hold permanently, and the arena.
/// @post   equals what they allocate, to the byte
/// @throws std::invalid_argument as arena_bytes
SHARDKIT_CONSTEXPR_VECTOR ByteCount peak(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                                         OptimizerStates optimizer_states = 2,
                                         SourceLocation where = SourceLocation::current()) {
    return detail::resting_bytes(schedule, groups, optimizer_states) + arena_bytes(schedule, groups, where);
}

}  // namespace shardkit::schedule
