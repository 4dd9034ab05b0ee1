// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include <shardkit/backend/device/offloaded_updates.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/rank.hpp>

// Updates of offloaded groups with a rule that is a value, piece by piece.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The update of a piece of a group, with copies of what it reads.
class PieceUpdate {
    static constexpr std::size_t most = 1 + 2 * AnyRuleUpdate::most_states;

  public:
    /// @param ranges  all of the group, each counted from the first element of its piece
    PieceUpdate(const AnyUpdateWork& whole, const OffloadPiece& piece, std::span<const rules::UpdateRange> ranges)
        : work_(whole.part(piece.elements.begin, piece.elements.size())) {
        work_.ranges = ranges.subspan(piece.ranges.begin, piece.ranges.size());
    }
    /// Puts what is offloaded into a slot of the device.
    void use(std::span<std::byte> slot) {
        const auto take = [&]<class T>(T*& memory, std::size_t bytes) {
            if (memory == nullptr) { return; }
            const std::span<std::byte> its = slot.first(bytes);
            buffers_[count_++] = {{reinterpret_cast<std::byte*>(memory), bytes}, its};
            memory = reinterpret_cast<T*>(its.data());
            slot = slot.subspan(std::min(slot.size(), round_up(bytes, piece_alignment)));
        };
        if (work_.gathered == nullptr) {
            take(work_.rest, work_.count * sizeof(*work_.rest));  // the master is the parameter, which stays
        } else {
            std::byte* master = static_cast<std::byte*>(work_.master);
            take(master, work_.count * size_of(work_.updated));
            work_.master = master;
        }
        for (std::size_t s = 0; s < work_.state_count; ++s) {
            AnyStateSpan& state = work_.states[s];
            take(state.elements, work_.count * size_of(stored_type(work_.format, work_.arithmetic)));
            take(state.scales, Block8::blocks(work_.count) * sizeof(float));
        }
    }
    /// Lets it read its gradient and update its parameters where they lie in a slot of the host.
    void use(std::byte* parameters, const std::byte* gradient) noexcept {
        (work_.gathered == nullptr ? work_.master : work_.gathered) = parameters;
        work_.gradient = gradient;
    }

    /// Calls f(in host memory, in the slot) for each buffer's part.
    template <class F>
    void for_each(const F& f) const {
        for (std::size_t i = 0; i < count_; ++i) { f(buffers_[i].host, buffers_[i].slot); }
    }
    /// Makes the update on the host.
    void operator()() const { work_(); }
    /// Gives it to a device's stream.
    void give(const Stream& stream) const { work_.give(stream); }

  private:
    struct Buffer {
        std::span<std::byte> host;
        std::span<std::byte> slot;
    };

    AnyUpdateWork work_;
    std::array<Buffer, most> buffers_{};
    std::size_t count_ = 0;
};

/// Updates groups on the device one behind the other, whose states lie in host memory. While a piece is updated on
/// the compute stream, the one before it is stored and the next one is fetched, on streams of their own. Everything
/// else that the rank's streams do with states and masters is in the order of the compute stream. Cost:
/// planner::offloaded_update_seconds
inline void update_pieces_on_device(const List<OffloadPlace>& places, Rank& rank, const UpdateTable& table,
                                    const std::uint32_t* skip) {
    const Stream compute = rank.compute_stream();
    const auto& slots = rank.kept<OffloadSlots<Offload::states>>();
    OrderedCopies copies(rank, engine::LinkWay::to_device);
    const auto in_slot = [&](const OffloadPlace& place, std::size_t slot) {
        const AnyUpdateWork whole = work_in_step(*place.of, table.updates(), skip);
        PieceUpdate piece(whole, *place, place.of->group->ranges());
        piece.use(slots[slot]);
        return piece;
    };
    const auto fetch = [&](const OffloadPlace& next, std::size_t slot) {
        copies.fetch(slot, [&](const auto& copy) { in_slot(next, slot).for_each(copy); });
    };
    in_two_slots(places, fetch, [&](const OffloadPlace& now, std::size_t slot) {
        Group& state = *now.of->state;
        if (now.piece == 0) { state.gradients().wait(); }
        const PieceUpdate here = in_slot(now, slot);
        compute.wait(copies.fetched(slot));
        here.give(compute);
        const auto updated = compute.record();
        copies.store(slot, updated,
                     [&](const auto& copy) { here.for_each([&](auto host, auto device) { copy(device, host); }); });
        if (now.is_last_of_group()) { state.parameters().end_update(updated, compute.capture()); }
    });
}

/// A piece in a slot of host memory: its parameters, and behind them its gradient.
struct HostSlot {
    std::span<std::byte> parameters;
    std::span<std::byte> gradient;

    HostSlot(std::span<std::byte> slot, const OffloadPlace& of)
        : parameters(slot.first((*of).elements.size() * size_of(of.of->state->elements().gather))),
          gradient(slot.subspan(round_up(parameters.size(), piece_alignment),
                                (*of).elements.size() * size_of(of.of->state->elements().reduction))) {}
};

/// Makes the calls of those groups that are updated on the host.
inline void make_host_calls(std::span<const TrainedGroup> groups, Rank& rank, const UpdateTable& table) {
    for (const TrainedGroup& each : groups) {
        OffloadedGroup& offloaded = each.group->offloaded();
        if (offloaded.host_ranges.empty()) { continue; }
        offloaded.host_calls.clear();
        const auto& slots = rank.kept<OffloadSlots<Offload::update>>();
        const AnyUpdateWork whole =
            work_at_rest(each, table.host_updates(), table.host_steps(*each.group->number()), table.host_skip());
        for (std::size_t p = 0; p < each.group->pieces().size(); ++p) {
            for (std::size_t slot = 0; slot < 2; ++slot) {
                PieceUpdate piece(whole, each.group->pieces()[p], offloaded.host_ranges);
                const HostSlot here(slots[slot], {&each, p});
                piece.use(here.parameters.data(), here.gradient.data());
                offloaded.host_calls.push_back(piece);
            }
        }
    }
}
/// Updates groups on the host one behind the other: while a piece is updated there, the parameters of the one before
/// it go back and the next one is fetched, on streams of their own.
/// Cost:   planner::offloaded_update_seconds, with the update on one thread of the host
inline void update_pieces_on_host(const List<OffloadPlace>& places, Rank& rank, const UpdateTable& table,
                                  const std::uint32_t* skip) {
    const Stream host = rank.world().host_stream();
    const auto& slots = rank.kept<OffloadSlots<Offload::update>>();
    OrderedCopies copies(rank, engine::LinkWay::to_host);
    const auto part = [](const StoredElements& of, const OffloadPlace& place) {
        const StoredElements its = of.subspan((*place).elements.begin, (*place).elements.size());
        return std::span(static_cast<std::byte*>(its.data()), its.bytes().size());
    };
    const auto parameters = [&](const OffloadPlace& place) {
        return part(place.of->state->parameters().gather_source(), place);
    };
    table.copy_to_host(rank, skip);
    const auto fetch = [&](const OffloadPlace& next, std::size_t slot) {
        Group& state = *next.of->state;
        if (next.piece == 0) {
            state.gradients().wait();
            copies.fetch_behind(rank.compute_stream().record());
        }
        const HostSlot here(slots[slot], next);
        copies.fetch(slot, [&](const auto& copy) {
            copy(part(next.of->group->gradient(state), next), here.gradient);
            copy(parameters(next), here.parameters);  // of which some may stay as it is
        });
    };
    in_two_slots(places, fetch, [&](const OffloadPlace& now, std::size_t slot) {
        host.wait(copies.fetched(slot));
        host.call_on_host([](void* call) { (*static_cast<std::function<void()>*>(call))(); },
                          &now.of->group->offloaded().host_calls[2 * now.piece + slot]);
        const HostSlot here(slots[slot], now);
        const auto stored =
            copies.store(slot, host.record(), [&](const auto& copy) { copy(here.parameters, parameters(now)); });
        if (now.is_last_of_group()) { now.of->state->parameters().end_update(stored, copies.storing().capture()); }
    });
}

/// Makes one step of those of the listed groups that are offloaded.
inline void run_offloaded(std::span<const TrainedGroup> groups, Rank& rank, const UpdateTable& table,
                          const std::uint32_t* skip) {
    const auto on_device = offload_places(groups, Offload::states);
    if (!on_device.empty()) { update_pieces_on_device(on_device, rank, table, skip); }
    const auto on_host = offload_places(groups, Offload::update);
    if (!on_host.empty()) { update_pieces_on_host(on_host, rank, table, skip); }
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
