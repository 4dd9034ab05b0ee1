// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// What a leased buffer of a schedule holds.
enum class SlotUse : std::uint8_t { full_parameters, full_gradients, addend };

/// A leased buffer from the operation that takes it to the one that gives it back, both included, and where it lies.
struct ScheduledSlot {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    SlotUse use{};
    std::uint32_t group = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t bytes = 0;
    std::size_t offset = 0;  ///< in the arena
    /// Slots whose bytes it takes over: the latest one given back by the compute lane, and by a communication lane,
    /// in this step or, where there is none, in the one before. `none`: no such slot.
    std::array<std::size_t, 2> after{none, none};

    constexpr bool given_back_by_compute() const noexcept { return use == SlotUse::full_parameters; }
};

/// Addresses in an arena are multiples of this: what the engines' own buffers are aligned to.
inline constexpr std::size_t slot_alignment = 256;

/// When a step's leased buffers exist. Of full parameters: from their gather to the last window that ends before the
/// next gather, or the step's end. Of gradients: from the first microbatch that adds to them to their reduction.
constexpr std::vector<ScheduledSlot> slots_of(const Schedule& schedule, std::span<const GroupDescription> groups) {
    ModelStep step(groups);
    std::array latest{filled(groups.size(), ScheduledSlot::none), filled(groups.size(), ScheduledSlot::none)};
    std::vector<ScheduledSlot> slots;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        if (op.act == Act::norm || op.group >= groups.size()) { continue; }
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
