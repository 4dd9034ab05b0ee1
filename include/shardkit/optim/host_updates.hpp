// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/comm/stream.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/offloaded_updates.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/copy_captures.hpp>

// Updates that run on the host: pieces of reduced gradients and parameters come into one of two slots of pinned
// memory, are used and updated there with the states and masters beside them, and the parameters go back.

namespace shardkit::detail {

/// A piece in a slot of host memory: its parameters, and behind them its gradient.
template <class Gradient, class Gather>
struct PieceOnHost {
    std::span<Gather> gathered;
    std::span<Gradient> gradient;

    PieceOnHost(std::span<std::byte> slot, std::size_t elements)
        : gathered(reinterpret_cast<Gather*>(slot.data()), elements),
          gradient(reinterpret_cast<Gradient*>(slot.data() + round_up(gathered.size_bytes(), piece_alignment)),
                   elements) {}
};

/// Updates groups on the host one behind the other: while a piece is updated there, the parameters of the one
/// before it go back and the next one is fetched, on streams of their own.
/// Cost:   planner::offloaded_update_seconds, with the update on one thread of the host
template <class Engine, class Listed>
class HostUpdates {
    using Stream = typename Engine::Stream;
    using Place = typename OffloadPlaces<Listed>::Place;

  public:
    static constexpr Offload way = Offload::update;

    HostUpdates(Context<Engine>& context, std::span<const Listed> listed)
        : context_(context),
          slots_(context.template kept<HostSlots<Engine>>()),
          places_(listed, way),
          copies_(context, engine::LinkWay::to_host) {}

    /// Makes the calls of a group that is updated on the host with the rule's first N states.
    template <std::size_t N, class Table>
    static void make_calls(Context<Engine>& context, const Listed& each, const Table& table) {
        auto& calls = each.group->offloaded().host_calls;
        calls.clear();
        const auto& slots = context.template kept<HostSlots<Engine>>();
        const auto whole = each.template spans_at_rest<N>(table.host_steps(*each.group->number()));
        using Spans = std::remove_const_t<decltype(whole)>;
        for (const OffloadPiece& piece : each.group->pieces()) {
            for (std::size_t slot = 0; slot < 2; ++slot) {
                const Slot<Spans> here(slots[slot], piece.elements.size());
                Spans spans = whole;
                const auto part = [&](auto span) {
                    return span.empty() ? span : span.subspan(piece.elements.begin, piece.elements.size());
                };
                spans.rest = part(whole.rest);
                for (auto& state : spans.states) { state = part(state); }
                spans.gradient = here.gradient;
                if constexpr (std::is_same_v<typename Spans::Master, typename Spans::Gather>) {
                    spans.master = here.gathered;
                } else {
                    spans.master = part(whole.master);
                    spans.gathered = here.gathered;
                }
                const std::span<const rules::UpdateRange> all(each.group->offloaded().host_ranges);
                const auto ranges = all.subspan(piece.ranges.begin, piece.ranges.size());
                calls.push_back([ranges, spans, updates = table.host_updates(), skip = table.host_skip()] {
                    if constexpr (requires { typename Engine::HostKernels; }) {
                        Engine::HostKernels::update(InlineStream{}, ranges, updates, skip, spans);
                    } else {
                        Engine::Kernels::update(Stream{}, ranges, updates, skip, spans);
                    }
                });
            }
        }
    }

    /// Updates them, with the rule's first N states.
    template <std::size_t N, class Table>
    void run(const Table& table, const std::uint32_t* skip) {
        using Spans = decltype(std::declval<const Listed&>().template spans<N>());
        const Stream host = context_.world().host_stream();
        table.copy_to_host(context_, skip);
        const auto gathered = [](auto& state) {
            return std::span<typename Spans::Gather>(state.parameters().gather_source());
        };
        const auto fetch = [&](const Place& next, std::size_t slot) {
            const Listed& each = places_[next];
            auto& state = *each.state;
            if (next.piece == 0) {
                state.gradients().wait();
                copies_.fetch_behind(context_.compute_stream().record());
            }
            const IndexRange elements = each.group->pieces()[next.piece].elements;
            const Slot<Spans> here(slots_[slot], elements.size());
            copies_.fetch(slot, [&](const auto& copy) {
                const auto part = [&](auto from, auto to) {
                    copy(std::as_bytes(from.subspan(elements.begin, elements.size())), std::as_writable_bytes(to));
                };
                part(each.gradient(), here.gradient);
                part(gathered(state), here.gathered);  // of which some may stay as it is
            });
        };
        places_.in_two_slots(fetch, [&](const Place& now, std::size_t slot) {
            const Listed& each = places_[now];
            auto& state = *each.state;
            host.wait(copies_.fetched(slot));
            host.call_on_host([](void* call) { (*static_cast<std::function<void()>*>(call))(); },
                              &each.group->offloaded().host_calls[2 * now.piece + slot]);
            const IndexRange elements = each.group->pieces()[now.piece].elements;
            const Slot<Spans> here(slots_[slot], elements.size());
            const auto stored = copies_.store(slot, host.record(), [&](const auto& copy) {
                copy(std::as_bytes(here.gathered),
                     std::as_writable_bytes(gathered(state).subspan(elements.begin, elements.size())));
            });
            if (places_.is_last_of_group(now)) {
                state.parameters().end_update(stored, capture_of(copies_.storing()));
            }
        });
    }

  private:
    template <class Spans>
    using Slot = PieceOnHost<typename Spans::Gradient, typename Spans::Gather>;

    Context<Engine>& context_;
    const HostSlots<Engine>& slots_;
    OffloadPlaces<Listed> places_;
    OrderedCopies<Engine> copies_;
};

/// Makes the calls of those of the listed groups that are updated on the host.
template <class Engine, class Listed, class Table>
void make_host_calls(std::span<const Listed> groups, Context<Engine>& context, const Table& table) {
    if constexpr (engine::Offloads<typename Engine::Communicator>) {
        for (const Listed& each : groups) {
            if (each.group->offloaded().host_ranges.empty()) { continue; }
            each.with_states(
                [&](auto n) { HostUpdates<Engine, Listed>::template make_calls<n>(context, each, table); });
        }
    }
}
template <class Way, class Engine, class Listed, class Table>
void run_in_way(std::span<const Listed> groups, Context<Engine>& context, const Table& table,
                const std::uint32_t* skip) {
    const OffloadPlaces<Listed> places(groups, Way::way);
    if (places.ends(places.first())) { return; }
    Way way(context, groups);
    groups.front().with_states([&](auto n) { way.template run<n>(table, skip); });
}
/// Makes one step of those of the listed groups that are offloaded.
template <class Engine, class Listed, class Table>
void run_offloaded(std::span<const Listed> groups, Context<Engine>& context, const Table& table,
                   const std::uint32_t* skip) {
    if constexpr (engine::Offloads<typename Engine::Communicator>) {
        run_in_way<OffloadedUpdates<Engine, Listed>>(groups, context, table, skip);
        run_in_way<HostUpdates<Engine, Listed>>(groups, context, table, skip);
    }
}

}  // namespace shardkit::detail
