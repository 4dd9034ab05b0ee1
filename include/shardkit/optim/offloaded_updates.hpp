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
#include <utility>

#include <shardkit/core/block8.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_error.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/state_storage.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/copy_captures.hpp>
#include <shardkit/sharded/group_buffer.hpp>

// Updates of groups whose states lie in host memory: pieces of these come into one of two slots of the device, are
// updated there and go back.

namespace shardkit::detail {

/// The two slots of a rank, which all its optimizers use, one step after the other.
/// Memory: two times RankOptions::offload_slot_bytes, of the engine's
template <class Engine>
class OffloadSlots {
  public:
    explicit OffloadSlots(const Context<Engine>& context)
        : bytes_(context.options().offload_slot_bytes),
          memory_(context.template local_buffer<std::uint8_t>(2 * bytes_)) {}
    std::span<std::byte> operator[](std::size_t slot) const noexcept {
        return std::as_writable_bytes(memory_.span().subspan(slot * bytes_, bytes_));
    }

  private:
    std::size_t bytes_;
    typename Engine::template Buffer<std::uint8_t> memory_;
};

/// The two slots of host memory that gradients come to and parameters go from, of a rank whose updates run there.
template <class Engine>
class HostSlots {
  public:
    explicit HostSlots(const Context<Engine>& context)
        : bytes_(context.options().offload_slot_bytes),
          memory_(context, true, "optimizer", "slots for updates on the host", 2 * bytes_) {}
    std::span<std::byte> operator[](std::size_t slot) const noexcept {
        return std::as_writable_bytes(memory_.span().subspan(slot * bytes_, bytes_));
    }

  private:
    std::size_t bytes_;
    OffloadedBuffer<Engine, std::uint8_t> memory_;
};

/// Allocates the slots of a rank where it has none yet. `path`: of the group that needs them.
/// @throws MemoryError when there is no memory
template <class Engine>
void make_offload_slots(Context<Engine>& context, std::string_view path, Offload offload) {
    try {
        if (offload == Offload::update) {
            static_cast<void>(context.template kept<HostSlots<Engine>>());
        } else {
            static_cast<void>(context.template kept<OffloadSlots<Engine>>());
        }
    } catch (const std::bad_alloc&) {
        throw MemoryError(path, 2 * context.options().offload_slot_bytes, "slots for offloaded states");
    }
}

/// A piece of an update's spans, of which what is offloaded lies in a slot.
template <class Spans>
class PieceInSlot {
    static constexpr std::size_t most = 1 + 2 * Spans::state_count;

  public:
    PieceInSlot(const Spans& whole, IndexRange piece, std::span<std::byte> slot) : spans(whole), slot_(slot) {
        const auto part = [&](auto span) { return span.empty() ? span : span.subspan(piece.begin, piece.size()); };
        spans.master = part(whole.master);
        spans.gathered = part(whole.gathered);
        spans.gradient = part(whole.gradient);
        spans.rest = part(whole.rest);
        for (auto& state : spans.states) { state = part(state); }
        if constexpr (std::is_same_v<typename Spans::Master, typename Spans::Gather>) {
            take(spans.rest);  // the master is the parameter, which stays where it is
        } else {
            take(spans.master);
        }
        for (auto& state : spans.states) {
            if constexpr (std::is_same_v<std::remove_reference_t<decltype(state)>, rules::Block8Span>) {
                take(state.codes);
                take(state.scales);
            } else {
                take(state);
            }
        }
    }

    /// Calls f(in host memory, in the slot) for each buffer's part.
    template <class F>
    void for_each(const F& f) const {
        for (std::size_t i = 0; i < count_; ++i) { f(buffers_[i].host, buffers_[i].slot); }
    }

    Spans spans;

  private:
    struct Buffer {
        std::span<std::byte> host;
        std::span<std::byte> slot;
    };
    template <class T>
    void take(std::span<T>& of) {
        if (of.empty()) { return; }
        const std::span<std::byte> its = slot_.first(of.size_bytes());
        buffers_[count_++] = {std::as_writable_bytes(of), its};
        of = {reinterpret_cast<T*>(its.data()), of.size()};
        slot_ = slot_.subspan(std::min(slot_.size(), round_up(its.size(), piece_alignment)));
    }

    std::span<std::byte> slot_;  // what is left of it
    std::array<Buffer, most> buffers_{};
    std::size_t count_ = 0;
};

/// The pieces of those groups that take part in a step and are offloaded in one way, in order.
template <class Listed>
class OffloadPlaces {
  public:
    struct Place {
        std::size_t group;  ///< among those listed
        std::size_t piece;
    };

    OffloadPlaces(std::span<const Listed> listed, Offload way) : listed_(listed), way_(way) {}

    Place first() const noexcept { return from(0); }
    bool ends(const Place& place) const noexcept { return place.group == listed_.size(); }
    bool is_last_of_group(const Place& place) const noexcept {
        return place.piece + 1 == listed_[place.group].group->pieces().size();
    }
    Place after(const Place& place) const noexcept {
        return is_last_of_group(place) ? from(place.group + 1) : Place{place.group, place.piece + 1};
    }
    const Listed& operator[](const Place& place) const noexcept { return listed_[place.group]; }

    /// Calls fetch(place, slot) and update(place, slot) for each piece, with two slots in turn: the next piece is
    /// fetched before one is updated.
    template <class Fetch, class Update>
    void in_two_slots(const Fetch& fetch, const Update& update) const {
        std::size_t slot = 0;
        Place next = first();
        if (!ends(next)) { fetch(next, slot); }
        while (!ends(next)) {
            const Place now = std::exchange(next, after(next));
            if (!ends(next)) { fetch(next, 1 - slot); }
            update(now, slot);
            slot = 1 - slot;
        }
    }

  private:
    Place from(std::size_t group) const noexcept {
        while (group < listed_.size() && !updates(listed_[group])) { ++group; }
        return {group, 0};
    }
    bool updates(const Listed& each) const noexcept {
        return each.taken && !each.group->pieces().empty() && each.state->geometry().offload == way_;
    }

    std::span<const Listed> listed_;
    Offload way_;
};

/// The copies of one step through two slots. Fetches go behind the compute stream's work, which may have made the
/// updates and written states and masters, and stores beside them. At its end, also where an update has failed in
/// between, it orders the compute stream behind the stores, so that whoever waits for that stream sees them.
template <class Engine>
class OrderedCopies : NotCopied {
    using Stream = typename Engine::Stream;
    using Event = typename Stream::Event;

  public:
    OrderedCopies(Context<Engine>& context, engine::LinkWay fetches) : context_(context), fetches_(fetches) {
        const Stream to_slots = fetching();
        to_slots.wait(context_.compute_stream().record());
    }
    ~OrderedCopies() {
        if (!stores_) { return; }
        const Stream compute = context_.compute_stream();
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
    Stream storing() const noexcept { return context_.world().copy_stream(other(fetches_)); }

  private:
    static engine::LinkWay other(engine::LinkWay way) noexcept {
        return way == engine::LinkWay::to_host ? engine::LinkWay::to_device : engine::LinkWay::to_host;
    }
    Stream fetching() const noexcept { return context_.world().copy_stream(fetches_); }

    Context<Engine>& context_;
    engine::LinkWay fetches_;
    bool stores_ = false;  // a stream without work of this step has no event that a capture may wait for
    std::array<Event, 2> fetched_{};
    std::array<Event, 2> stored_{};
};

/// Updates offloaded groups one behind the other. While a piece is updated on the compute stream, the one before it
/// is stored and the next one is fetched, on streams of their own. Everything else that the rank's streams do with
/// states and masters is in the order of the compute stream.
/// Cost:   planner::offloaded_update_seconds
template <class Engine, class Listed>
class OffloadedUpdates {
    using Stream = typename Engine::Stream;
    using Place = typename OffloadPlaces<Listed>::Place;

  public:
    static constexpr Offload way = Offload::states;

    OffloadedUpdates(Context<Engine>& context, std::span<const Listed> listed)
        : context_(context),
          slots_(context.template kept<OffloadSlots<Engine>>()),
          places_(listed, way),
          copies_(context, engine::LinkWay::to_device) {}

    /// Updates them, with the rule's first N states.
    template <std::size_t N, class Table>
    void run(const Table& table, const std::uint32_t* skip) {
        const Stream compute = context_.compute_stream();
        const auto fetch = [&](const Place& next, std::size_t slot) {
            copies_.fetch(slot, [&](const auto& copy) { in_slot<N>(next, slot).for_each(copy); });
        };
        places_.in_two_slots(fetch, [&](const Place& now, std::size_t slot) {
            const Listed& each = places_[now];
            auto& state = *each.state;
            if (now.piece == 0) { state.gradients().wait(); }
            const auto here = in_slot<N>(now, slot);
            const IndexRange ranges = each.group->pieces()[now.piece].ranges;
            compute.wait(copies_.fetched(slot));
            Engine::Kernels::update(compute, each.group->ranges().subspan(ranges.begin, ranges.size()),
                                    table.updates(), skip, here.spans);
            const auto updated = compute.record();
            copies_.store(slot, updated, [&](const auto& copy) {
                here.for_each([&](auto host, auto device) { copy(device, host); });
            });
            if (places_.is_last_of_group(now)) { state.parameters().end_update(updated, capture_of(compute)); }
        });
    }

  private:
    template <std::size_t N>
    auto in_slot(const Place& place, std::size_t slot) const {
        const Listed& each = places_[place];
        return PieceInSlot(each.template spans<N>(), each.group->pieces()[place.piece].elements, slots_[slot]);
    }

    Context<Engine>& context_;
    const OffloadSlots<Engine>& slots_;
    OffloadPlaces<Listed> places_;
    OrderedCopies<Engine> copies_;
};

}  // namespace shardkit::detail
