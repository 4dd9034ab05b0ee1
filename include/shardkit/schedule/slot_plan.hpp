// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slots.hpp>

namespace shardkit::detail {

/// The leased buffers of a step, placed in one arena so that buffers which exist at the same time do not overlap.
struct SlotPlan {
    std::vector<ScheduledSlot> slots;  ///< in the order in which they are taken, at most one for each operation
    std::size_t arena_bytes = 0;

    /// Returns the slot that operation `op` takes; `none` where it takes none.
    SHARDKIT_CONSTEXPR_VECTOR std::size_t taken_by(std::size_t op, SlotUse use) const noexcept {
        const auto found =
            std::lower_bound(slots.begin(), slots.end(), op,
                             [](const ScheduledSlot& slot, std::size_t at) { return slot.begin < at; });
        const bool takes = found != slots.end() && found->begin == op && found->use == use;
        return takes ? static_cast<std::size_t>(found - slots.begin()) : ScheduledSlot::none;
    }
};

/// Places slots, the largest first, each at the lowest offset that is free during its lifetime. Slots of equal size
/// are placed in the order of time. Returns the bytes of the arena.
/// Cost:    the square of the slots at most
/// Source:  greedy by size, as in Pisarchyk and Lee, arXiv 2001.03288
SHARDKIT_CONSTEXPR_VECTOR std::size_t place(std::vector<ScheduledSlot>& slots) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < slots.size(); ++i) { order.push_back(i); }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return slots[a].bytes != slots[b].bytes ? slots[a].bytes > slots[b].bytes : a < b;
    });
    std::vector<std::size_t> placed;  // by offset
    std::size_t arena_bytes = 0;
    for (const std::size_t number : order) {
        ScheduledSlot& slot = slots[number];
        slot.offset = 0;
        for (const std::size_t each : placed) {
            const ScheduledSlot& other = slots[each];
            if (other.offset >= slot.offset + slot.bytes) { break; }
            if (other.begin > slot.end || slot.begin > other.end) { continue; }
            const std::size_t behind = other.offset + other.bytes;
            slot.offset = std::max(slot.offset, (behind + slot_alignment - 1) / slot_alignment * slot_alignment);
        }
        const auto above =
            std::upper_bound(placed.begin(), placed.end(), slot.offset,
                             [&](std::size_t offset, std::size_t a) { return offset < slots[a].offset; });
        placed.insert(above, number);
        arena_bytes = std::max(arena_bytes, slot.offset + slot.bytes);
    }
    return arena_bytes;
}

/// Finds which slots used the bytes of a slot before it. Of the slots that one lane releases only the latest counts,
/// as a lane's operations follow each other.
/// Cost:    the square of the slots
SHARDKIT_CONSTEXPR_VECTOR void find_earlier(std::vector<ScheduledSlot>& slots) {
    constexpr std::size_t none = ScheduledSlot::none;
    for (ScheduledSlot& slot : slots) {
        std::array<std::size_t, 2> in_step{none, none};
        std::array<std::size_t, 2> in_last_step{none, none};
        for (std::size_t number = 0; number < slots.size(); ++number) {
            const ScheduledSlot& other = slots[number];
            if (other.offset >= slot.offset + slot.bytes || slot.offset >= other.offset + other.bytes) { continue; }
            const auto take = [&](std::size_t& latest) {
                if (latest == none || other.end >= slots[latest].end) { latest = number; }
            };
            const std::size_t lane = other.given_back_by_compute() ? 0 : 1;
            take(in_last_step[lane]);
            if (other.end < slot.begin) { take(in_step[lane]); }
        }
        for (const std::size_t lane : {0U, 1U}) {
            slot.after[lane] = in_step[lane] != none ? in_step[lane] : in_last_step[lane];
        }
    }
}

/// Returns where a schedule's leased buffers lie.
SHARDKIT_CONSTEXPR_VECTOR SlotPlan place_slots(std::vector<ScheduledSlot> slots) {
    SlotPlan plan{std::move(slots), 0};
    plan.arena_bytes = place(plan.slots);
    return plan;
}
/// Returns where they lie, and what each of them waits for.
SHARDKIT_CONSTEXPR_VECTOR SlotPlan plan_slots(const Schedule& schedule, std::span<const GroupDescription> groups) {
    SlotPlan plan = place_slots(slots_of(schedule, groups));
    find_earlier(plan.slots);
    return plan;
}

}  // namespace shardkit::detail
