// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/detail/vector_constexpr.hpp>
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
    constexpr bool overlaps_in_time(const ScheduledSlot& other) const noexcept {
        return begin <= other.end && other.begin <= end;
    }
    constexpr bool overlaps_in_memory(const ScheduledSlot& other) const noexcept {
        return offset < other.offset + other.bytes && other.offset < offset + bytes;
    }
};

/// Addresses in an arena are multiples of this: what the engines' own buffers are aligned to.
inline constexpr std::size_t slot_alignment = 256;

/// When a step's leased buffers exist. Of full parameters: from their gather to the last window that ends before the
/// next gather, or the step's end. Of gradients: from the first microbatch that adds to them to their reduction.
SHARDKIT_VECTOR_CONSTEXPR std::vector<ScheduledSlot> slots_of(const Schedule& schedule,
                                                              std::span<const GroupDescription> groups) {
    constexpr std::size_t none = ScheduledSlot::none;
    const std::vector<GroupRows> rows = rows_of(groups);
    struct Open {
        std::size_t full = none;
        std::size_t gradients = none;
        bool reduced = false;
    };
    std::vector<Open> open = filled(groups.size(), Open{});
    std::vector<ScheduledSlot> slots;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        if (op.act == Act::norm || op.group >= groups.size()) { continue; }
        const GroupRows& its = rows[op.group];
        Open& now = open[op.group];
        if (op.act == Act::gather && its.full_bytes > 0) {
            now.full = slots.size();
            slots.push_back({SlotUse::full_parameters, op.group, i, i, its.full_bytes});
        } else if ((op.act == Act::close || op.act == Act::use) && now.full != none) {
            slots[now.full].end = i;
        } else if (op.act == Act::zero && its.gradient_bytes > 0) {
            if (now.gradients == none) {
                now.gradients = slots.size();
                slots.push_back({SlotUse::full_gradients, op.group, i, i, its.gradient_bytes});
            }
        } else if (op.act == Act::add && now.gradients != none) {
            slots[now.gradients].end = i;
        } else if (op.act == Act::reduce && now.gradients != none) {
            slots[now.gradients].end = i;
            now.gradients = none;
            if (now.reduced && its.addend_bytes > 0) {
                slots.push_back({SlotUse::addend, op.group, i, i, its.addend_bytes});
            }
            now.reduced = true;
        }
    }
    return slots;
}

}  // namespace shardkit::detail
