// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slots.hpp>

namespace shardkit {

/// Bytes of the arena in which a schedule's gathered parameters, full gradients and addends lie while they are
/// needed: buffers of any sizes share it, and each has the same address in every step.
constexpr ByteCount arena_bytes(const Schedule& schedule, std::span<const GroupDescription> groups) {
    return ByteCount(detail::plan_slots(schedule, groups).arena_bytes);
}

/// Bytes of the library's buffers on one rank while it follows the schedule: what groups, an optimizer with so many
/// states and the norm hold all the time, and the arena.
/// @post equals what they allocate, to the byte
constexpr ByteCount peak(const Schedule& schedule, std::span<const GroupDescription> groups,
                         std::size_t optimizer_states = 2) {
    PlanOptions options{.optimizer_states = optimizer_states, .norms_per_step = 0};
    for (const Op& op : schedule.ops()) { options.norms_per_step += op.act == Act::norm ? 1U : 0U; }
    return detail::resting_memory(groups, options).total() + arena_bytes(schedule, groups);
}

namespace detail {

/// Leased bytes that exist during each operation.
constexpr std::vector<std::size_t> bytes_held(const Schedule& schedule, std::span<const ScheduledSlot> slots) {
    std::vector<std::size_t> bytes = filled(schedule.size(), std::size_t{0});
    for (const ScheduledSlot& slot : slots) {
        for (std::size_t i = slot.begin; i <= slot.end; ++i) { bytes[i] += slot.bytes; }
    }
    return bytes;
}

}  // namespace detail

}  // namespace shardkit
