// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slots.hpp>

namespace shardkit::detail {

inline constexpr std::size_t no_op = static_cast<std::size_t>(-1);

/// A stretch in which a slot is held and not needed, and what ends that.
struct IdleStretch {
    std::size_t begin = 0;  // operations, `end` not included
    std::size_t end = 0;
    std::size_t bytes = 0;
    Op added{};  // in front of operation `at`
    std::size_t at = 0;
    std::size_t left_out = no_op;
};

/// For each operation the next one of its group; no_op where there is none, and for norms.
SHARDKIT_VECTOR_CONSTEXPR std::vector<std::size_t> next_of_group(const Schedule& schedule, std::size_t groups) {
    std::vector<std::size_t> next = filled(schedule.size(), no_op);
    std::vector<std::size_t> first = filled(groups, no_op);
    for (std::size_t i = schedule.size(); i-- > 0;) {
        if (schedule[i].act == Act::norm || schedule[i].group >= groups) { continue; }
        next[i] = first[schedule[i].group];
        first[schedule[i].group] = i;
    }
    return next;
}

/// The stretches of a slot: of parameters before their first use and between windows, of gradients between
/// microbatches and before their reduction.
SHARDKIT_VECTOR_CONSTEXPR void add_idle_stretches(const Schedule& schedule, const ScheduledSlot& slot,
                                                  const std::vector<std::size_t>& next,
                                                  std::vector<IdleStretch>& found) {
    std::size_t since = slot.begin;
    bool needed = slot.use == SlotUse::full_gradients;
    bool used = needed;
    std::size_t windows = 0;
    for (std::size_t i = next[slot.begin]; i != no_op && i <= slot.end; i = next[i]) {
        const Op& op = schedule[i];
        if (slot.use == SlotUse::full_parameters && op.act == Act::use) {
            if (!needed && i > since + 1) {
                Op gather = schedule[slot.begin];
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

/// The schedule without some of its idle stretches: as many as `count`, where most is held first, of equal ones the
/// larger one. Where there are fewer, all.
SHARDKIT_VECTOR_CONSTEXPR Schedule without_idle(const Schedule& schedule, std::span<const GroupDescription> groups,
                                                std::size_t count) {
    const std::vector<ScheduledSlot> slots = slots_of(schedule, groups);
    const std::vector<std::size_t> next = next_of_group(schedule, groups.size());
    std::vector<IdleStretch> idle;
    for (const ScheduledSlot& slot : slots) {
        if (slot.use != SlotUse::addend) { add_idle_stretches(schedule, slot, next, idle); }
    }
    HeldBytes held(bytes_held(schedule, slots));
    struct Candidate {
        std::size_t most = 0;  // when it was looked at last: it can only have become less
        std::size_t number = 0;
    };
    const auto after = [&](const Candidate& a, const Candidate& b) {
        if (a.most != b.most) { return a.most < b.most; }
        const std::size_t bytes_a = idle[a.number].bytes;
        const std::size_t bytes_b = idle[b.number].bytes;
        return bytes_a != bytes_b ? bytes_a < bytes_b : a.number > b.number;
    };
    std::vector<Candidate> heap;
    for (std::size_t i = 0; i < idle.size(); ++i) { heap.push_back({held.most(idle[i].begin, idle[i].end), i}); }
    std::make_heap(heap.begin(), heap.end(), after);
    std::vector<std::size_t> chosen;  // in the order of their places
    while (!heap.empty() && chosen.size() < count) {
        std::pop_heap(heap.begin(), heap.end(), after);
        Candidate& top = heap.back();
        const IdleStretch& stretch = idle[top.number];
        const std::size_t most = held.most(stretch.begin, stretch.end);
        if (most < top.most) {
            top.most = most;
            std::push_heap(heap.begin(), heap.end(), after);
            continue;
        }
        held.take(stretch.begin, stretch.end, stretch.bytes);
        chosen.push_back(top.number);
        heap.pop_back();
    }
    std::sort(chosen.begin(), chosen.end(), [&](std::size_t a, std::size_t b) { return idle[a].at < idle[b].at; });
    std::vector<char> left_out = filled(schedule.size(), char{0});
    for (const std::size_t number : chosen) {
        if (idle[number].left_out != no_op) { left_out[idle[number].left_out] = 1; }
    }
    Schedule made;
    auto added = chosen.begin();
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        for (; added != chosen.end() && idle[*added].at == i; ++added) { made.add(idle[*added].added); }
        if (left_out[i] == 0) { made.add(schedule[i]); }
    }
    return made;
}

}  // namespace shardkit::detail
