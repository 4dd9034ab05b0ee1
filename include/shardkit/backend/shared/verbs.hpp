// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/comm/reduce_op.hpp>

// What a rank does between entry and exit of a collective in which ranks read and write each other's memory, for
// every engine with such ranks. Nothing here throws or waits. `Round` is that of shared/round.hpp.

namespace shardkit::shared::detail {

using host::Memory;
using host::detail::Reducer;

/// Visits all ranks, beginning after the own one, so that the ranks do not all read the same peer at once.
template <class Round, class Visit>
void for_each_rank_from_next(const Round& round, Visit visit) noexcept {
    const std::size_t ranks = round.size();
    for (std::size_t q = round.rank() + 1; q < ranks; ++q) { visit(q); }
    for (std::size_t q = 0; q <= round.rank(); ++q) { visit(q); }
}

/// Reads `bytes` bytes at `values` once and writes every piece to all places before it reads the next one. place(q)
/// is rank q's place, or null.
template <class Round, class Place>
void write_to_all(const Round& round, const std::byte* values, std::size_t bytes, host::detail::Store store,
                  Place place) noexcept {
    // A piece is still in the first-level cache for the next rank's place.
    constexpr std::size_t piece = 16384;
    for (std::size_t at = 0; at < bytes; at += piece) {
        for_each_rank_from_next(round, [&](std::size_t q) {
            if (std::byte* const to = place(q); to != nullptr) {
                host::detail::copy_elements(values + at, to + at, std::min(piece, bytes - at), store);
            }
        });
    }
}

/// Returns whether it reads less to write a shard of `bytes` bytes to all ranks, which reads it once, than to let
/// every rank read all shards that are not in place. The same on all ranks.
template <class Round>
bool gains_by_writing(const Round& round, std::size_t bytes) noexcept {
    if (round.carried() || !round.shows_outputs()) { return false; }
    std::size_t reads = 0;
    for (std::size_t q = 0; q < round.size(); ++q) {
        const bool in_place = round.input(q) == round.output(q) + q * bytes;
        reads += round.size() - (in_place ? 1 : 0);
    }
    return reads > round.size();
}

/// Gathers to `full`: each rank reads its peers' shards, which puts them into its own caches. If they would not stay
/// there, it writes its own shard to all ranks instead.
template <class Round>
void all_gather(const Round& round, Memory full) noexcept {
    const std::size_t k = full.bytes() / round.size();
    const host::detail::Store store = host::detail::store_for(round.size() * full.bytes());  // alike on all ranks
    if (store == host::detail::Store::streaming && gains_by_writing(round, k)) {
        const std::byte* const own = round.input(round.rank());
        write_to_all(round, own, k, store, [&](std::size_t q) {
            std::byte* const to = round.output(q) + round.rank() * k;
            return to == own ? nullptr : to;
        });
    } else {
        for_each_rank_from_next(round, [&](std::size_t q) {
            const std::byte* const from = round.input(q);
            std::byte* const to = full.at + q * k;
            if (to != from) { host::detail::copy_elements(from, to, k, store); }
        });
    }
    host::detail::finish(store);
}

/// Reduces to each rank its piece, `shard`, which may be this rank's piece of its input.
template <class Round>
void reduce_scatter(const Round& round, const Reducer& reducer, ReduceOp op, Memory shard) noexcept {
    const std::size_t bytes = shard.count * reducer.in_size;  // of a piece of the input
    const host::detail::Store store =
        host::detail::store_for(round.size() * (round.size() * bytes + shard.count * reducer.out_size));
    const std::size_t begin = round.rank() * bytes;
    const bool in_place = shard.at == round.input(round.rank()) + begin;
    host::detail::reduce_in_rank_order(
        reducer, op, round.size(), shard.count, [&](std::size_t q) { return round.input(q) + begin; },
        host::detail::Result<std::byte>{shard.at, in_place ? host::detail::Store::cached : store});
    host::detail::finish(store);
}

/// Reduces to `output`: each rank reduces one chunk and writes it to all ranks. Inputs that are carried with the
/// calls are reduced completely by every rank.
template <class Round>
void all_reduce(const Round& round, const Reducer& reducer, ReduceOp op, Memory output) noexcept {
    const std::size_t ranks = round.size();
    const std::size_t count = output.count;
    if (round.carried()) {
        host::detail::reduce_in_rank_order(
            reducer, op, ranks, count, [&](std::size_t q) { return round.input(q); },
            host::detail::Result<std::byte>{output.at});
        return;
    }
    const host::detail::Store store = host::detail::store_for(ranks * count * (reducer.in_size + reducer.out_size));
    const host::detail::Chunk own =
        host::detail::chunk_of(count, std::min(reducer.in_size, reducer.out_size), round.rank(), ranks);
    host::detail::reduce_in_rank_order(
        reducer, op, ranks, own.size(), [&](std::size_t q) { return round.input(q) + own.begin * reducer.in_size; },
        ranks,
        [&](std::size_t q) {
            // A result that replaces its input is already in the caches.
            return host::detail::Result<std::byte>{round.output(q) + own.begin * reducer.out_size,
                                                   round.in_place(q) ? host::detail::Store::cached : store};
        });
    host::detail::finish(store);
}

/// Broadcasts: each rank, also the root, reads one chunk of the root's values and writes it to all others. Values
/// that are carried with the calls are copied completely by every rank. @pre every rank's output is its `values`
template <class Round>
void broadcast(const Round& round, Memory values, std::size_t root) noexcept {
    const std::byte* const from = round.input(root);
    if (round.carried()) {
        if (round.rank() != root) { host::detail::copy_elements(from, values.at, values.bytes()); }
        return;
    }
    const host::detail::Store store = host::detail::store_for(round.size() * values.bytes());
    const host::detail::Chunk own = host::detail::chunk_of(values.bytes(), 1, round.rank(), round.size());
    write_to_all(round, from + own.begin, own.size(), store,
                 [&](std::size_t q) { return q == root ? nullptr : round.output(q) + own.begin; });
    host::detail::finish(store);
}

template <class Round>
void all_to_all(const Round& round, Memory received) noexcept {
    const std::size_t k = received.bytes() / round.size();
    const host::detail::Store store = host::detail::store_for(2 * round.size() * received.bytes());
    for_each_rank_from_next(round, [&](std::size_t q) {
        host::detail::copy_elements(round.input(q) + round.rank() * k, received.at + q * k, k, store);
    });
    host::detail::finish(store);
}

/// What a rank shows its peers in an uneven all-to-all: the input of its round, which is carried with the call.
struct UnevenInput {
    const void* sent;
    std::size_t bytes;      ///< of all that it sends
    std::uint64_t balance;  ///< count_balance
};

/// Copies member q's piece for this one, `rank`, which begins at piece_of(q), behind those of the members before q;
/// leaves a place where piece_of(q) is null. The round's input is an UnevenInput.
template <class Round, class PieceOf>
void all_to_all_uneven(const Round& round, std::size_t rank, Memory received,
                       std::span<const std::size_t> receive_counts, PieceOf piece_of) noexcept {
    std::size_t bytes = 0;
    for (std::size_t q = 0; q < round.size(); ++q) { bytes += round.template input<UnevenInput>(q)->bytes; }
    const host::detail::Store store = host::detail::store_for(2 * bytes);
    const auto copy = [&](std::size_t first, std::size_t end, std::size_t at) {
        for (std::size_t q = first; q < end; at += receive_counts[q++]) {
            if (const std::byte* const from = piece_of(q)) {
                host::detail::copy_elements(from, received.at + at * received.size, receive_counts[q] * received.size,
                                            store);
            }
        }
    };
    // Begins behind the own one, so that the ranks do not all read the same peer at once.
    const std::size_t next = rank + 1;
    copy(next, receive_counts.size(), std::accumulate(&receive_counts[0], &receive_counts[0] + next, std::size_t{0}));
    copy(0, next, 0);
    host::detail::finish(store);
}

}  // namespace shardkit::shared::detail
