// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>

// Copies between ranks of several hosts, where ranks of one host see each other's memory. Data for another host is
// sent to one rank there, from which its neighbours read it.

namespace shardkit::mpi::detail {

/// Distributes the ranks' pieces of `full`; every rank already has its own in place. piece_of(q) is rank q's range.
/// Each piece is sent to every other host once. @pre `full` is the output that the round shows
template <class T, class PieceOf>
void spread(const Across& way, T* full, PieceOf piece_of) {
    const Call& call = way.call;
    const Group& group = call.group;
    const auto copy = [&](std::size_t q, std::size_t neighbour) {
        const host::detail::Chunk piece = piece_of(q);
        const T* const theirs = way.round.template output<T>(group.homes[neighbour].place);
        host::detail::copy_elements(theirs + piece.begin, full + piece.begin, piece.size());
    };
    std::size_t longest = 0;
    for (std::size_t q = 0; q < group.size(); ++q) { longest = std::max(longest, piece_of(q).size()); }
    way.round.meet();  // the neighbours' pieces are there, and nobody reads what is overwritten now
    constexpr int tag = 0;
    for_each_piece(call, longest, [&](std::size_t at, int most) {
        const auto part = [&](std::size_t q) {
            const std::size_t size = piece_of(q).size();
            return static_cast<int>(std::min(size - std::min(size, at), static_cast<std::size_t>(most)));
        };
        std::size_t used = 0;
        const auto requests = call.lane.requests();
        for (std::size_t q = 0; q < group.size(); ++q) {
            if (!group.takes_from(q) || part(q) == 0) { continue; }
            call.mpi().check(MPI_Irecv(full + piece_of(q).begin + at, part(q), datatype<T>(), static_cast<int>(q),
                                       tag, call.channel.comm, &requests[used++]),
                             "MPI_Irecv");
        }
        for (std::size_t h = 0; h < group.hosts.size(); ++h) {
            if (h == group.host || part(group.rank) == 0) { continue; }
            call.mpi().check(
                MPI_Isend(full + piece_of(group.rank).begin + at, part(group.rank), datatype<T>(),
                          static_cast<int>(group.taker(h, group.place)), tag, call.channel.comm, &requests[used++]),
                "MPI_Isend");
        }
        if (at == 0) {
            for (const std::size_t q : group.neighbours()) {
                if (q != group.rank) { copy(q, q); }
            }
        }
        call.lane.await(call, requests.first(used));
    });
    way.round.meet();  // the pieces that the neighbours received are there
    for (std::size_t q = 0; q < group.size(); ++q) {
        if (group.is_here(q) || group.takes_from(q)) { continue; }
        copy(q, group.taker(group.host, group.homes[q].place));
    }
}

template <class T>
void all_gather(const Across& way, const T* shard, std::span<T> full) {
    const std::size_t k = full.size() / way.call.group.size();
    T* const own = full.data() + way.call.group.rank * k;
    if (shard != own) { host::detail::copy_elements(shard, own, k); }
    spread(way, full.data(), [k](std::size_t q) { return host::detail::Chunk{q * k, (q + 1) * k}; });
}

/// Broadcasts: the root sends to one rank of every other host.
template <class T>
void broadcast(const Across& way, std::span<T> values, std::size_t root) {
    const Group& group = way.call.group;
    const Group::Home from = group.homes[root];
    const std::size_t first = group.is_here(root) ? root : group.taker(group.host, from.place);
    constexpr int tag = 0;
    for_each_piece(way.call, values.size(), [&](std::size_t at, int size) {
        std::size_t used = 0;
        const auto requests = way.call.lane.requests();
        if (group.rank == root) {
            for (std::size_t h = 0; h < group.hosts.size(); ++h) {
                if (h == group.host) { continue; }
                way.call.mpi().check(
                    MPI_Isend(values.data() + at, size, datatype<T>(), static_cast<int>(group.taker(h, from.place)),
                              tag, way.call.channel.comm, &requests[used++]),
                    "MPI_Isend");
            }
        } else if (group.rank == first) {
            way.call.mpi().check(MPI_Irecv(values.data() + at, size, datatype<T>(), static_cast<int>(root), tag,
                                           way.call.channel.comm, &requests[used++]),
                                 "MPI_Irecv");
        }
        way.call.lane.await(way.call, requests.first(used));
    });
    way.round.meet();
    if (group.rank != first) { host::detail::copy_elements(way.input<T>(first), values.data(), values.size()); }
}

/// Exchanges a message each way between every pair of ranks of different hosts.
template <class T>
void all_to_all(const Across& way, std::span<const T> sent, std::span<T> received) {
    const Group& group = way.call.group;
    const std::size_t k = sent.size() / group.size();
    for (const std::size_t q : group.neighbours()) {
        host::detail::copy_elements(way.input<T>(q) + group.rank * k, received.data() + q * k, k);
    }
    exchange_pieces<T>(
        way.call, [&](std::size_t to) { return sent.subspan(to * k, group.is_here(to) ? 0 : k); },
        [&](std::size_t from) { return received.subspan(from * k, group.is_here(from) ? 0 : k); });
}

}  // namespace shardkit::mpi::detail
