// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_error.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_buffer.hpp>

// Where updates of offloaded groups are made, and their copies. States that lie in host memory come in pieces into
// one of two slots of the device, are updated there and go back. For updates that run on the host, pieces of reduced
// gradients and parameters come into one of two slots of pinned memory, are used and updated there with the states
// and masters beside them, and the parameters go back.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The two slots of a rank, which all its optimizers use, one step after the other: of the engine's memory, or, where
/// updates run on the host, of the host's, that gradients come to and parameters go from.
/// Memory: two times RankOptions::offload_slot_bytes
template <Offload way>
class OffloadSlots {
  public:
    explicit OffloadSlots(const Rank& rank)
        : bytes_(rank.options().offload_slot_bytes), memory_(allocate(rank, 2 * bytes_)) {}
    std::span<std::byte> operator[](std::size_t slot) const noexcept {
        return std::as_writable_bytes(memory_.span().subspan(slot * bytes_, bytes_));
    }

  private:
    static HostBuffer<std::uint8_t> allocate(const Rank& rank, std::size_t bytes) {
        if (way == Offload::states) { return rank.local_buffer<std::uint8_t>(bytes); }
        return group_buffer<std::uint8_t>(rank, "optimizer", "slots for updates on the host", bytes,
                                          /*offloaded=*/true);
    }

    std::size_t bytes_;
    HostBuffer<std::uint8_t> memory_;
};

/// Allocates the slots of a rank where it has none yet. `path`: of the group that needs them.
/// @throws MemoryError when there is no memory
inline void make_offload_slots(Rank& rank, std::string_view path, Offload offload) {
    try {
        if (offload == Offload::update) {
            static_cast<void>(rank.kept<OffloadSlots<Offload::update>>());
        } else {
            static_cast<void>(rank.kept<OffloadSlots<Offload::states>>());
        }
    } catch (const std::bad_alloc&) {
        throw MemoryError(path, 2 * rank.options().offload_slot_bytes, "slots for offloaded states");
    }
}

/// A piece of a group that takes part in a step.
struct OffloadPlace {
    const TrainedGroup* of;
    std::size_t piece;

    const OffloadPiece& operator*() const noexcept { return of->group->pieces()[piece]; }
    bool is_last_of_group() const noexcept { return piece + 1 == of->group->pieces().size(); }
};
/// The pieces of those listed groups that take part in a step and are offloaded in one way, in order.
inline List<OffloadPlace> offload_places(std::span<const TrainedGroup> listed, Offload way) {
    List<OffloadPlace> places;
    for (const TrainedGroup& each : listed) {
        if (!each.taken || each.state->geometry().offload != way) { continue; }
        for (std::size_t p = 0; p < each.group->pieces().size(); ++p) { places.push_back({&each, p}); }
    }
    return places;
}
/// Calls fetch(place, slot) and update(place, slot) for each piece, with two slots in turn: the next piece is fetched
/// before one is updated.
template <class Fetch, class Update>
void in_two_slots(const List<OffloadPlace>& places, const Fetch& fetch, const Update& update) {
    for (std::size_t next = 0; next <= places.size(); ++next) {
        if (next < places.size()) { fetch(places[next], next % 2); }
        if (next > 0) { update(places[next - 1], (next - 1) % 2); }
    }
}

/// The copies of one step through two slots. Fetches go behind the compute stream's work, which may have made the
/// updates and written states and masters, and stores beside them. At its end, also where an update has failed in
/// between, it orders the compute stream behind the stores, so that whoever waits for that stream sees them.
class OrderedCopies : NotCopied {
  public:
    OrderedCopies(Rank& rank, engine::LinkWay fetches) : rank_(rank), fetches_(fetches) {
        const Stream to_slots = fetching();
        to_slots.wait(rank_.compute_stream().record());
    }
    ~OrderedCopies() {
        if (!stores_) { return; }
        const Stream compute = rank_.compute_stream();
        compute.wait(storing().record());
    }

    /// Orders fetches behind an event of another stream.
    void fetch_behind(const Event& event) const {
        const Stream to_slots = fetching();
        to_slots.wait(event);
    }
    /// Fetches what `copies(copy)` copies into a slot, behind what was stored from it.
    template <class Copies>
    void fetch(std::size_t slot, const Copies& copies) {
        const Stream to_slots = fetching();
        to_slots.wait(stored_[slot]);
        copies([&](auto from, auto to) { to_slots.give_copy(from.data(), to.data(), to.size()); });
        fetched_[slot] = to_slots.record();
    }
    /// Returns the event of the last fetch into a slot.
    const Event& fetched(std::size_t slot) const noexcept { return fetched_[slot]; }
    /// Stores what `copies(copy)` copies from a slot, behind the update of what lies there.
    template <class Copies>
    const Event& store(std::size_t slot, const Event& updated, const Copies& copies) {
        const Stream from_slots = storing();
        from_slots.wait(updated);
        stores_ = true;
        copies([&](auto from, auto to) { from_slots.give_copy(from.data(), to.data(), to.size()); });
        return stored_[slot] = from_slots.record();
    }
    Stream storing() const noexcept { return rank_.world().copy_stream(other(fetches_)); }

  private:
    static engine::LinkWay other(engine::LinkWay way) noexcept {
        return way == engine::LinkWay::to_host ? engine::LinkWay::to_device : engine::LinkWay::to_host;
    }
    Stream fetching() const noexcept { return rank_.world().copy_stream(fetches_); }

    Rank& rank_;
    engine::LinkWay fetches_;
    bool stores_ = false;  // a stream without work of this step has no event that a capture may wait for
    std::array<Event, 2> fetched_{};
    std::array<Event, 2> stored_{};
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
