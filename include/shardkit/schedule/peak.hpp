// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>
#include <shardkit/schedule/slots.hpp>

namespace shardkit {

/// Bytes of the arena in which a schedule's gathered parameters, full gradients and addends lie while they are
/// needed: buffers of any sizes share it, and each has the same address in every step.
/// Cost:    close to a sort of the buffers where sizes repeat; works in constant expressions
/// @throws  std::invalid_argument when the schedule has a group that is not described
SHARDKIT_VECTOR_CONSTEXPR ByteCount arena_bytes(const Schedule& schedule, std::span<const GroupDescription> groups,
                                                SourceLocation where = SourceLocation::current()) {
    detail::require_described(schedule, groups, where);
    return ByteCount(detail::place_slots(detail::slots_of(schedule, groups)).arena_bytes);
}

namespace detail {
/// What groups, an optimizer with so many states and the norm hold all the time.
SHARDKIT_VECTOR_CONSTEXPR ByteCount resting_bytes(const Schedule& schedule, std::span<const GroupDescription> groups,
                                                  std::size_t optimizer_states) {
    PlanOptions options{.optimizer_states = optimizer_states, .norms_per_step = 0};
    for (const Op& op : schedule.ops()) { options.norms_per_step += op.act == Act::norm ? 1U : 0U; }
    return resting_memory(groups, options).total();
}
}  // namespace detail

/// Bytes of the library's buffers on one rank while it follows the schedule: what groups, an optimizer with so many
/// states and the norm hold all the time, and the arena.
/// @post   equals what they allocate, to the byte
/// @throws std::invalid_argument as arena_bytes
SHARDKIT_VECTOR_CONSTEXPR ByteCount peak(const Schedule& schedule, std::span<const GroupDescription> groups,
                                         std::size_t optimizer_states = 2,
                                         SourceLocation where = SourceLocation::current()) {
    return detail::resting_bytes(schedule, groups, optimizer_states) + arena_bytes(schedule, groups, where);
}

namespace detail {

/// Leased bytes that exist during each operation.
SHARDKIT_VECTOR_CONSTEXPR std::vector<std::size_t> bytes_held(const Schedule& schedule,
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

/// Leased bytes by operation, where stretches of operations get more or less and the most of a stretch is asked for.
/// Cost:    both the logarithm of the operations
class HeldBytes {
  public:
    SHARDKIT_VECTOR_CONSTEXPR explicit HeldBytes(std::span<const std::size_t> bytes) {
        while (leaves_ < bytes.size()) { leaves_ *= 2; }
        most_ = filled(2 * leaves_, std::int64_t{0});
        added_ = most_;
        for (std::size_t i = 0; i < bytes.size(); ++i) { most_[leaves_ + i] = static_cast<std::int64_t>(bytes[i]); }
        for (std::size_t node = leaves_; --node > 0;) {
            most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
        }
    }
    /// To the operations from `begin` to the one before `end`.
    SHARDKIT_VECTOR_CONSTEXPR void add(std::size_t begin, std::size_t end, std::size_t bytes) {
        add(begin, end, static_cast<std::int64_t>(bytes), 1, 0, leaves_);
    }
    /// From them.
    /// @pre as many are held there
    SHARDKIT_VECTOR_CONSTEXPR void take(std::size_t begin, std::size_t end, std::size_t bytes) {
        add(begin, end, -static_cast<std::int64_t>(bytes), 1, 0, leaves_);
    }
    SHARDKIT_VECTOR_CONSTEXPR std::size_t most(std::size_t begin, std::size_t end) const {
        return static_cast<std::size_t>(std::max<std::int64_t>(most(begin, end, 1, 0, leaves_), 0));
    }

  private:
    static constexpr std::int64_t nothing = std::numeric_limits<std::int64_t>::min() / 2;

    SHARDKIT_VECTOR_CONSTEXPR void add(std::size_t begin, std::size_t end, std::int64_t bytes, std::size_t node,
                                       std::size_t first, std::size_t last) {
        if (begin >= last || end <= first) { return; }
        if (begin <= first && last <= end) {
            most_[node] += bytes;
            added_[node] += bytes;
            return;
        }
        const std::size_t middle = (first + last) / 2;
        add(begin, end, bytes, 2 * node, first, middle);
        add(begin, end, bytes, 2 * node + 1, middle, last);
        most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
    }
    SHARDKIT_VECTOR_CONSTEXPR std::int64_t most(std::size_t begin, std::size_t end, std::size_t node,
                                                std::size_t first, std::size_t last) const {
        if (begin >= last || end <= first) { return nothing; }
        if (begin <= first && last <= end) { return most_[node]; }
        const std::size_t middle = (first + last) / 2;
        return added_[node] +
               std::max(most(begin, end, 2 * node, first, middle), most(begin, end, 2 * node + 1, middle, last));
    }

    std::size_t leaves_ = 1;
    std::vector<std::int64_t> most_;   // of a node's operations; node n's halves are 2 n and 2 n + 1
    std::vector<std::int64_t> added_;  // to all of them, not yet to the halves
};

}  // namespace detail

}  // namespace shardkit
