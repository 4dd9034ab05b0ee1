// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/comm/reduce_op.hpp>

// What a rank does between entry and exit of a collective in which ranks read and write each other's memory, for
// every engine with such ranks. Nothing here throws or waits. `Round` is that of shared/round.hpp.

namespace shardkit::shared::detail {

/// Visits all ranks, beginning after the own one, so that the ranks do not all read the same peer at once.
template <class Round, class Visit>
void for_each_rank_from_next(const Round& round, Visit visit) noexcept {
    const std::size_t ranks = round.size();
    for (std::size_t q = round.rank() + 1; q < ranks; ++q) { visit(q); }
    for (std::size_t q = 0; q <= round.rank(); ++q) { visit(q); }
}

/// Reads `values` once and writes every piece to all places before it reads the next one. place(q) is rank q's place,
/// or null.
template <class T, class Round, class Place>
void write_to_all(const Round& round, const T* values, std::size_t count, host::detail::Store store,
                  Place place) noexcept {
    // A piece is still in the first-level cache for the next rank's place.
    constexpr std::size_t piece = std::max<std::size_t>(1, 16384 / sizeof(T));
    for (std::size_t at = 0; at < count; at += piece) {
        for_each_rank_from_next(round, [&](std::size_t q) {
            if (T* const to = place(q); to != nullptr) {
                host::detail::copy_elements(values + at, to + at, std::min(piece, count - at), store);
            }
        });
    }
}

/// Returns whether it reads less to write a shard to all ranks, which reads it once, than to let every rank read all
/// shards that are not in place. The same on all ranks.
template <class T, class Round>
bool gains_by_writing(const Round& round, std::size_t k) noexcept {
    if (round.carried() || !round.shows_outputs()) { return false; }
    std::size_t reads = 0;
    for (std::size_t q = 0; q < round.size(); ++q) {
        const bool in_place = round.template input<T>(q) == round.template output<T>(q) + q * k;
        reads += round.size() - (in_place ? 1 : 0);
    }
    return reads > round.size();
}

/// Gathers: each rank reads its peers' shards, which puts them into its own caches. If they would not stay there, it
/// writes its own shard to all ranks instead.
template <class T, class Round>
void all_gather(const Round& round, const T* /*shard*/, std::span<T> full) noexcept {
    const std::size_t k = full.size() / round.size();
    const host::detail::Store store =
        host::detail::store_for(round.size() * full.size_bytes());  // alike on all ranks
    if (store == host::detail::Store::streaming && gains_by_writing<T>(round, k)) {
        const T* const own = round.template input<T>(round.rank());
        write_to_all(round, own, k, store, [&](std::size_t q) {
            T* const to = round.template output<T>(q) + round.rank() * k;
            return to == own ? nullptr : to;
        });
    } else {
        for_each_rank_from_next(round, [&](std::size_t q) {
            const T* const from = round.template input<T>(q);
            T* const to = full.data() + q * k;
            if (to != from) { host::detail::copy_elements(from, to, k, store); }
        });
    }
    host::detail::finish(store);
}

/// Reduces to each rank its piece. `shard` may be this rank's piece of `full`.
template <class In, class Out, class Round>
void reduce_scatter(const Round& round, ReduceOp op, std::span<const In> full, Out* shard) noexcept {
    const std::size_t k = full.size() / round.size();
    const host::detail::Store store = host::detail::store_for(round.size() * (full.size_bytes() + k * sizeof(Out)));
    const std::size_t begin = round.rank() * k;
    const bool in_place = shard == static_cast<const void*>(round.template input<In>(round.rank()) + begin);
    host::detail::reduce_in_rank_order<In, Out>(
        op, round.size(), k, [&](std::size_t q) { return round.template input<In>(q) + begin; },
        host::detail::Result<Out>{shard, in_place ? host::detail::Store::cached : store});
    host::detail::finish(store);
}

/// Reduces: each rank reduces one chunk and writes it to all ranks. Inputs that are carried with the calls are
/// reduced completely by every rank.
template <class In, class Out, class Round>
void all_reduce(const Round& round, ReduceOp op, std::size_t count, Out* output) noexcept {
    const std::size_t ranks = round.size();
    if (round.carried()) {
        host::detail::reduce_in_rank_order<In, Out>(
            op, ranks, count, [&](std::size_t q) { return round.template input<In>(q); },
            host::detail::Result<Out>{output});
        return;
    }
    const host::detail::Store store = host::detail::store_for(ranks * count * (sizeof(In) + sizeof(Out)));
    const host::detail::Chunk own =
        host::detail::chunk_of(count, std::min(sizeof(In), sizeof(Out)), round.rank(), ranks);
    host::detail::reduce_in_rank_order<In, Out>(
        op, ranks, own.size(), [&](std::size_t q) { return round.template input<In>(q) + own.begin; }, ranks,
        [&](std::size_t q) {
            // A result that replaces its input is already in the caches.
            return host::detail::Result<Out>{round.template output<Out>(q) + own.begin,
                                             round.in_place(q) ? host::detail::Store::cached : store};
        });
    host::detail::finish(store);
}

/// Broadcasts: each rank, also the root, reads one chunk of the root's values and writes it to all others. Values
/// that are carried with the calls are copied completely by every rank. @pre every rank's output is its `values`
template <class T, class Round>
void broadcast(const Round& round, std::span<T> values, std::size_t root) noexcept {
    const T* const from = round.template input<T>(root);
    if (round.carried()) {
        if (round.rank() != root) { host::detail::copy_elements(from, values.data(), values.size()); }
        return;
    }
    const host::detail::Store store = host::detail::store_for(round.size() * values.size_bytes());
    const host::detail::Chunk own = host::detail::chunk_of(values.size(), sizeof(T), round.rank(), round.size());
    write_to_all(round, from + own.begin, own.size(), store,
                 [&](std::size_t q) { return q == root ? nullptr : round.template output<T>(q) + own.begin; });
    host::detail::finish(store);
}

template <class T, class Round>
void all_to_all(const Round& round, std::span<const T> sent, std::span<T> received) noexcept {
    const std::size_t k = sent.size() / round.size();
    const host::detail::Store store = host::detail::store_for(2 * round.size() * sent.size_bytes());
    for_each_rank_from_next(round, [&](std::size_t q) {
        host::detail::copy_elements(round.template input<T>(q) + round.rank() * k, received.data() + q * k, k, store);
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
template <class T, class Round, class PieceOf>
void all_to_all_uneven(const Round& round, std::size_t rank, std::span<T> received,
                       std::span<const std::size_t> receive_counts, PieceOf piece_of) noexcept {
    std::size_t bytes = 0;
    for (std::size_t q = 0; q < round.size(); ++q) { bytes += round.template input<UnevenInput>(q)->bytes; }
    const host::detail::Store store = host::detail::store_for(2 * bytes);
    const auto copy = [&](std::size_t first, std::size_t end, std::size_t at) {
        for (std::size_t q = first; q < end; at += receive_counts[q++]) {
            if (const T* const from = piece_of(q)) {
                host::detail::copy_elements(from, received.data() + at, receive_counts[q], store);
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
