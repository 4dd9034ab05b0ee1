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
enum class SlotUse : std::uint8_t { full_parameters, full_gradients, addend };

/// A leased buffer, from the operation that takes it to the one that releases it (both included), and its place.
struct ScheduledSlot {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    SlotUse use{};
    std::uint32_t group = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t bytes = 0;
    std::size_t offset = 0;  ///< in the arena
    /// Earlier slots with the same bytes: the latest one that the compute lane released, and the latest of a
    /// communication lane, in this step or if there is none, in the step before. `none` if there is no such slot.
    std::array<std::size_t, 2> after{none, none};

    constexpr bool given_back_by_compute() const noexcept { return use == SlotUse::full_parameters; }
};

/// The alignment of addresses in an arena, that of the engines' own buffers.
inline constexpr std::size_t slot_alignment = 256;

/// Returns the lifetimes of a step's leased buffers. Full parameters exist from their gather to the last window
/// before the next gather or the end of the step; gradients from the first microbatch that is added to them to their
/// reduction.
SHARDKIT_CONSTEXPR_VECTOR std::vector<ScheduledSlot> slots_of(const Schedule& schedule,
                                                              std::span<const GroupDescription> groups) {
    ModelStep step(groups);
    std::array latest{filled(groups.size(), ScheduledSlot::none), filled(groups.size(), ScheduledSlot::none)};
    std::vector<ScheduledSlot> slots;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        if (!is_of_group(op.act) || op.group >= groups.size()) { continue; }
        const GroupRows& rows = step.rows(op.group);
        const Applied applied = step.apply(op.act, op.group, op.microbatch);
        if (applied.works_in) {
            const bool full = applied.works_in == Role::gathered;
            std::size_t& slot = latest[full ? 0 : 1][op.group];
            if (applied.takes) {
                slot = slots.size();
                slots.push_back({full ? SlotUse::full_parameters : SlotUse::full_gradients, op.group, i, i,
                                 full ? rows.full_bytes : rows.gradient_bytes});
            }
            if (slot != ScheduledSlot::none) { slots[slot].end = i; }
        }
        if (applied.takes_addend) { slots.push_back({SlotUse::addend, op.group, i, i, rows.addend_bytes}); }
    }
    return slots;
}

}  // namespace shardkit::detail
