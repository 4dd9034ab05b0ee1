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
/// are placed in the order of time. The result of a scan from the bottom stays valid for the next slot until a lower
/// slot begins or ends: where sizes repeat, most scans start where the previous one ended.
/// Cost:    slots times places in the arena at most; close to a sort of the slots where sizes repeat
/// Source:  greedy by size, as in Pisarchyk and Lee, arXiv 2001.03288
class SlotPlacement {
  public:
    SHARDKIT_CONSTEXPR_VECTOR explicit SlotPlacement(std::vector<ScheduledSlot>& slots)
        : slots_(slots), next_(filled(slots.size(), none)) {}

    /// Places all slots. @returns the bytes of the arena
    SHARDKIT_CONSTEXPR_VECTOR std::size_t run() {
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < slots_.size(); ++i) { order.push_back(i); }
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return slots_[a].bytes != slots_[b].bytes ? slots_[a].bytes > slots_[b].bytes : a < b;
        });
        std::size_t arena_bytes = 0;
        std::size_t size = 0;
        for (const std::size_t number : order) {
            ScheduledSlot& slot = slots_[number];
            if (slot.bytes != size) {
                size = slot.bytes;
                scans_.clear();
                for (Place& place : places_) { place.now = place.first; }
            }
            slot.offset = lowest(slot);
            put(number);
            arena_bytes = std::max(arena_bytes, slot.offset + slot.bytes);
        }
        return arena_bytes;
    }

  private:
    static constexpr std::size_t none = ScheduledSlot::none;

    /// Slots of equal size at one offset; their lifetimes follow each other.
    struct Place {
        std::size_t offset = 0;
        std::size_t bytes = 0;
        std::size_t first = none;
        std::size_t last = none;
        std::size_t now = none;  // the first that ends after the slot being placed begins
    };
    /// The result of a scan up to a place, and the slots for which it is valid.
    struct Scan {
        std::size_t offset = 0;         // above all slots that exist at the same time
        std::size_t end_most = none;    // valid for slots that begin no later than this,
        std::size_t end_least = 0;      // end no earlier than this
        std::size_t end_before = none;  // and before this
    };

    constexpr std::size_t lowest(const ScheduledSlot& slot) {
        while (!scans_.empty() && !holds(scans_.back(), slot)) { scans_.pop_back(); }
        Scan scan = scans_.empty() ? Scan{} : scans_.back();
        for (std::size_t p = scans_.size(); p < places_.size(); ++p) {
            Place& place = places_[p];
            if (place.offset >= scan.offset && place.offset - scan.offset >= slot.bytes) { break; }
            while (place.now != none && slots_[place.now].end < slot.begin) { place.now = next_[place.now]; }
            if (place.now != none) {
                const ScheduledSlot& other = slots_[place.now];
                scan.end_most = std::min(scan.end_most, other.end);
                if (other.begin <= slot.end) {
                    scan.end_least = std::max(scan.end_least, other.begin);
                    const std::size_t behind =
                        (place.offset + place.bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
                    scan.offset = std::max(scan.offset, behind);
                } else {
                    scan.end_before = std::min(scan.end_before, other.begin);
                }
            }
            scans_.push_back(scan);
        }
        return scan.offset;
    }
    static constexpr bool holds(const Scan& scan, const ScheduledSlot& slot) noexcept {
        return slot.begin <= scan.end_most && slot.end >= scan.end_least && slot.end < scan.end_before;
    }
    /// Appends a slot to its place; it is the latest one there.
    SHARDKIT_CONSTEXPR_VECTOR void put(std::size_t number) {
        const ScheduledSlot& slot = slots_[number];
        auto place = std::lower_bound(places_.begin(), places_.end(), slot.offset,
                                      [](const Place& a, std::size_t offset) { return a.offset < offset; });
        while (place != places_.end() && place->offset == slot.offset && place->bytes != slot.bytes) { ++place; }
        const auto p = static_cast<std::size_t>(place - places_.begin());
        if (place == places_.end() || place->offset != slot.offset) {
            places_.insert(place, {slot.offset, slot.bytes, number, number, number});
        } else {
            next_[place->last] = number;
            place->last = number;
            if (place->now == none) { place->now = number; }
        }
        while (scans_.size() > p) { scans_.pop_back(); }
    }

    std::vector<ScheduledSlot>& slots_;
    std::vector<std::size_t> next_;  // by slot: the next one at the same place
    std::vector<Place> places_;      // by offset
    std::vector<Scan> scans_;        // of the first places
};

/// Finds which slots used the bytes of a slot before it. Of the slots that one lane releases only the latest counts,
/// as a lane's operations follow each other.
/// Cost:    slots times the places that share bytes with theirs
class SlotOrder {
  public:
    SHARDKIT_CONSTEXPR_VECTOR explicit SlotOrder(std::vector<ScheduledSlot>& slots) : slots_(slots) {
        std::vector<std::size_t> by_place = numbers();
        std::sort(by_place.begin(), by_place.end(), [&](std::size_t a, std::size_t b) {
            return slots_[a].offset != slots_[b].offset ? slots_[a].offset < slots_[b].offset
                                                        : slots_[a].bytes < slots_[b].bytes;
        });
        place_of_ = filled(slots_.size(), std::size_t{0});
        for (const std::size_t number : by_place) {
            const ScheduledSlot& slot = slots_[number];
            if (places_.empty() || places_.back().offset != slot.offset || places_.back().bytes != slot.bytes) {
                places_.push_back({slot.offset, slot.bytes});
            }
            place_of_[number] = places_.size() - 1;
        }
        for (std::size_t a = 0; a < places_.size(); ++a) {
            shared_.emplace_back(a, a);
            for (std::size_t b = a + 1;
                 b < places_.size() && places_[b].offset < places_[a].offset + places_[a].bytes; ++b) {
                shared_.emplace_back(a, b);
                shared_.emplace_back(b, a);
            }
        }
        std::sort(shared_.begin(), shared_.end());
    }

    SHARDKIT_CONSTEXPR_VECTOR void run() {
        std::vector<std::size_t> by_end = numbers();
        std::sort(by_end.begin(), by_end.end(), [&](std::size_t a, std::size_t b) { return later(b, a); });
        for (const std::size_t number : by_end) { places_[place_of_[number]].in_all[lane(number)] = number; }
        std::size_t ended = 0;
        for (std::size_t number = 0; number < slots_.size(); ++number) {
            const std::size_t begin = slots_[number].begin;
            for (; ended < by_end.size(); ++ended) {
                const std::size_t other = by_end[ended];
                const std::size_t end = slots_[other].end;
                if (end >= begin) { break; }
                places_[place_of_[other]].in_step[lane(other)] = other;
            }
            find(number);
        }
    }

  private:
    static constexpr std::size_t none = ScheduledSlot::none;

    struct Place {
        std::size_t offset = 0;
        std::size_t bytes = 0;
        std::array<std::size_t, 2> in_step{none, none};  // by lane, the latest slot that has ended
        std::array<std::size_t, 2> in_all{none, none};
    };

    SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> numbers() const {
        std::vector<std::size_t> all;
        for (std::size_t i = 0; i < slots_.size(); ++i) { all.push_back(i); }
        return all;
    }
    SHARDKIT_CONSTEXPR_VECTOR std::size_t lane(std::size_t number) const noexcept {
        return slots_[number].given_back_by_compute() ? 0 : 1;
    }
    SHARDKIT_CONSTEXPR_VECTOR bool later(std::size_t a, std::size_t b) const noexcept {
        return slots_[a].end != slots_[b].end ? slots_[a].end > slots_[b].end : a > b;
    }
    SHARDKIT_CONSTEXPR_VECTOR void find(std::size_t number) {
        std::array<std::size_t, 2> in_step{none, none};
        std::array<std::size_t, 2> in_last_step{none, none};
        const auto take = [&](std::size_t& latest, std::size_t other) {
            if (other != none && (latest == none || later(other, latest))) { latest = other; }
        };
        const std::size_t place = place_of_[number];
        for (auto each =
                 std::lower_bound(shared_.begin(), shared_.end(), std::pair<std::size_t, std::size_t>(place, 0));
             each != shared_.end() && each->first == place; ++each) {
            for (const std::size_t lane : {0U, 1U}) {
                take(in_step[lane], places_[each->second].in_step[lane]);
                take(in_last_step[lane], places_[each->second].in_all[lane]);
            }
        }
        for (const std::size_t lane : {0U, 1U}) {
            slots_[number].after[lane] = in_step[lane] != none ? in_step[lane] : in_last_step[lane];
        }
    }

    std::vector<ScheduledSlot>& slots_;
    std::vector<Place> places_;  // by offset
    std::vector<std::size_t> place_of_;
    std::vector<std::pair<std::size_t, std::size_t>> shared_;  // pairs of places that share bytes, in both orders
};

/// Returns where a schedule's leased buffers lie.
SHARDKIT_CONSTEXPR_VECTOR SlotPlan place_slots(std::vector<ScheduledSlot> slots) {
    SlotPlan plan{std::move(slots), 0};
    plan.arena_bytes = SlotPlacement(plan.slots).run();
    return plan;
}
/// Returns where they lie, and what each of them waits for.
SHARDKIT_CONSTEXPR_VECTOR SlotPlan plan_slots(const Schedule& schedule, std::span<const GroupDescription> groups) {
    SlotPlan plan = place_slots(slots_of(schedule, groups));
    SlotOrder(plan.slots).run();
    return plan;
}

}  // namespace shardkit::detail
