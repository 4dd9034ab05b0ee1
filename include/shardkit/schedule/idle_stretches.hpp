// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slots.hpp>

namespace shardkit::detail {

inline constexpr std::size_t no_op = static_cast<std::size_t>(-1);

/// Returns the maximum of `held` over operations [begin, end).
constexpr std::size_t most_held(std::span<const std::size_t> held, std::size_t begin, std::size_t end) {
    if (begin >= end) { return 0; }
    const auto during = held.subspan(begin, end - begin);
    return *std::max_element(during.begin(), during.end());
}

/// A stretch in which a slot is held but not needed, and the change of the schedule that removes it.
struct IdleStretch {
    std::size_t begin = 0;  // operations [begin, end)
    std::size_t end = 0;
    std::size_t bytes = 0;
    schedule::Op added{};  // inserted in front of operation `at`
    std::size_t at = 0;
    std::size_t left_out = no_op;
};

/// Returns for each operation the next one of its group; no_op where there is none, and for norms.
SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> next_of_group(const Schedule& schedule, std::size_t groups) {
    std::vector<std::size_t> next = filled(schedule.size(), no_op);
    std::vector<std::size_t> first = filled(groups, no_op);
    for (std::size_t i = schedule.size(); i-- > 0;) {
        if (!schedule::is_of_group(schedule[i].act) || schedule[i].group >= groups) { continue; }
        next[i] = first[schedule[i].group];
        first[schedule[i].group] = i;
    }
    return next;
}

/// Finds the idle stretches of a slot: of parameters before their first use and between windows, of gradients between
/// microbatches and before their reduction.
SHARDKIT_CONSTEXPR_VECTOR void add_idle_stretches(const Schedule& schedule, const ScheduledSlot& slot,
                                                  const std::vector<std::size_t>& next,
                                                  std::vector<IdleStretch>& found) {
    std::size_t since = slot.begin;
    bool needed = slot.use == SlotUse::full_gradients;
    bool used = needed;
    std::size_t windows = 0;
    for (std::size_t i = next[slot.begin]; i != no_op && i <= slot.end; i = next[i]) {
        const schedule::Op& op = schedule[i];
        if (slot.use == SlotUse::full_parameters && op.act == Act::use) {
            if (!needed && i > since + 1) {
                schedule::Op gather = schedule[slot.begin];
                gather.microbatch = op.microbatch;
                found.push_back({since + (used ? 1 : 0), i, slot.bytes, gather, i, used ? no_op : slot.begin});
            }
            needed = used = true;
            ++windows;
        } else if (slot.use == SlotUse::full_parameters && op.act == Act::close) {
            needed = --windows > 0;
            since = i;
        } else if (slot.use == SlotUse::full_gradients && op.act == Act::add) {
            std::size_t zero = next[i];
            while (zero != no_op && schedule[zero].act != Act::zero) { zero = next[zero]; }
            if (zero != no_op && zero <= slot.end) {
                found.push_back({i + 1,
                                 zero,
                                 slot.bytes,
                                 {Act::reduce, op.group, op.microbatch, schedule[slot.end].lane},
                                 i + 1,
                                 no_op});
            } else if (slot.end > i + 1) {
                found.push_back({i + 1, slot.end, slot.bytes, schedule[slot.end], i + 1, slot.end});
            }
        }
    }
}

/// Returns the idle stretches of a schedule in the order in which to remove them. The first one is where most memory
/// is held and has the most bytes there; the next is chosen the same way after its removal.
/// Cost:    the square of the operations
SHARDKIT_CONSTEXPR_VECTOR std::vector<IdleStretch> idle_stretches(const Schedule& schedule,
                                                                  std::span<const GroupDescription> groups) {
    const std::vector<ScheduledSlot> slots = slots_of(schedule, groups);
    const std::vector<std::size_t> next = next_of_group(schedule, groups.size());
    std::vector<IdleStretch> found;
    for (const ScheduledSlot& slot : slots) {
        // What an update releases is released as early as it can be.
        const bool idles = slot.use == SlotUse::full_parameters ||
                           (slot.use == SlotUse::full_gradients && !slot.given_back_by_compute());
        if (idles) { add_idle_stretches(schedule, slot, next, found); }
    }
    std::vector<std::size_t> held = bytes_held(schedule, slots);
    std::vector<IdleStretch> ordered;
    while (!found.empty()) {
        const auto at = static_cast<std::size_t>(std::max_element(held.begin(), held.end()) - held.begin());
        auto largest = found.end();
        for (auto each = found.begin(); each != found.end(); ++each) {
            if (at < each->begin || at >= each->end) { continue; }
            if (largest == found.end() || each->bytes > largest->bytes) { largest = each; }
        }
        if (largest == found.end()) {
            held[at] = 0;  // all of it is needed there
            continue;
        }
        for (std::size_t i = largest->begin; i < largest->end; ++i) { held[i] -= std::min(held[i], largest->bytes); }
        ordered.push_back(*largest);
        found.erase(largest);
    }
    return ordered;
}

/// Returns the schedule without the given idle stretches.
SHARDKIT_CONSTEXPR_VECTOR Schedule without_idle(const Schedule& schedule, std::span<const IdleStretch> idle) {
    std::vector<IdleStretch> by_place(idle.begin(), idle.end());
    std::sort(by_place.begin(), by_place.end(), [](const IdleStretch& a, const IdleStretch& b) {
        return a.at != b.at ? a.at < b.at : a.begin < b.begin;
    });
    std::vector<char> left_out = filled(schedule.size(), char{0});
    for (const IdleStretch& each : by_place) {
        if (each.left_out != no_op) { left_out[each.left_out] = 1; }
    }
    Schedule made;
    auto added = by_place.begin();
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        for (; added != by_place.end() && added->at == i; ++added) { made.add(added->added); }
        if (left_out[i] == 0) { made.add(schedule[i]); }
    }
    return made;
}

}  // namespace shardkit::detail
