// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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

}  // namespace shardkit::detail
