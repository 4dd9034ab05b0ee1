// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// What a leased buffer of a schedule holds.
enum class SlotUse : std::uint8_t { full_parameters, full_gradients, addend, sums };

/// A leased buffer, from the operation that takes it to the one that releases it (both included), and its place.
struct ScheduledSlot {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    SlotUse use{};
    std::uint32_t group = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t bytes = 0;
    std::size_t offset = 0;                         ///< in the arena
    schedule::Lane ends = schedule::Lane::compute;  ///< the lane of the operation that releases it
    /// Earlier slots with the same bytes: the latest one that the compute lane released, and the latest of a
    /// communication lane, in this step or if there is none, in the step before. `none` if there is no such slot.
    std::array<std::size_t, 2> after{none, none};

    constexpr bool given_back_by_compute() const noexcept { return ends == schedule::Lane::compute; }
};

/// The alignment of addresses in an arena, that of the engines' own buffers.
inline constexpr std::size_t slot_alignment = 256;

/// Returns the lifetimes of a step's leased buffers. Full parameters exist from their gather to the last window
/// before the next gather or the end of the step; gradients from the first microbatch that is added to them to their
/// reduction. Where gradients are released at the update, what is reduced exists from the first reduction to it.
SHARDKIT_CONSTEXPR_VECTOR std::vector<ScheduledSlot> slots_of(const Schedule& schedule,
                                                              std::span<const GroupDescription> groups) {
    ModelStep step(groups);
    std::vector<std::array<std::size_t, 3>> latest =
        filled(groups.size(), std::array{ScheduledSlot::none, ScheduledSlot::none, ScheduledSlot::none});
    std::vector<ScheduledSlot> slots;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const schedule::Op& op = schedule[i];
        if (!schedule::is_of_group(op.act) || op.group >= groups.size()) { continue; }
        const GroupRows& rows = step.rows(op.group);
        const Applied applied = step.apply(op.act, op.group, op.microbatch);
        const auto works_in = [&](SlotUse use, std::size_t kind, bool takes, std::size_t bytes) {
            std::size_t& slot = latest[op.group][kind];
            if (takes) {
                slot = slots.size();
                slots.push_back({use, op.group, i, i, bytes});
            }
            if (slot == ScheduledSlot::none) { return; }
            slots[slot].end = i;
            slots[slot].ends = schedule::lane_of(op.act);
        };
        if (applied.works_in == Role::gathered) {
            works_in(SlotUse::full_parameters, 0, applied.takes, rows.full_bytes);
        } else if (applied.works_in) {
            works_in(SlotUse::full_gradients, 1, applied.takes, rows.gradient_bytes);
        }
        if (applied.works_in_sums) { works_in(SlotUse::sums, 2, applied.takes_sums, rows.reduced_bytes); }
        if (applied.takes_addend) {
            slots.push_back({SlotUse::addend, op.group, i, i, rows.addend_bytes, 0, schedule::lane_of(op.act)});
        }
    }
    return slots;
}

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
