// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>

// Copies between ranks of several hosts, where ranks of one host see each other's memory. Data for another host is
// sent to one rank there, from which its neighbours read it.

namespace shardkit::mpi::detail {

/// Distributes the ranks' pieces of `full`; every rank already has its own in place. piece_of(q) is rank q's range.
/// Each piece is sent to every other host once. @pre `full` is the output that the round shows
template <class PieceOf>
void spread(const BetweenHosts& way, host::Memory full, PieceOf piece_of) {
    const Call& call = way.call;
    const Group& group = call.group;
    const auto copy = [&](std::size_t q, std::size_t neighbour) {
        const host::detail::Chunk piece = piece_of(q);
        const std::byte* const theirs = way.round.output(group.homes[neighbour].place);
        const host::Memory to = full.part(piece.begin, piece.size());
        host::detail::copy_elements(theirs + piece.begin * full.size, to.at, to.bytes());
    };
    std::size_t longest = 0;
    for (std::size_t q = 0; q < group.size(); ++q) { longest = std::max(longest, piece_of(q).size()); }
    way.round.meet();  // the neighbours' pieces are there, and nobody reads what is overwritten now
    constexpr int tag = 0;
    for_each_piece(call, longest, [&](std::size_t at, int most) {
        const auto part = [&](std::size_t q) {
            const std::size_t size = piece_of(q).size();
            return std::min(size - std::min(size, at), static_cast<std::size_t>(most));
        };
        std::size_t used = 0;
        const auto requests = call.lane.requests();
        for (std::size_t q = 0; q < group.size(); ++q) {
            if (!group.takes_from(q) || part(q) == 0) { continue; }
            call.receive(full.part(piece_of(q).begin + at, 0).at, part(q), full.size, q, tag, requests[used++]);
        }
        for (std::size_t h = 0; h < group.hosts.size(); ++h) {
            if (h == group.host || part(group.rank) == 0) { continue; }
            call.send(full.part(piece_of(group.rank).begin + at, 0).at, part(group.rank), full.size,
                      group.taker(h, group.place), tag, requests[used++]);
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

inline void all_gather(const BetweenHosts& way, host::ConstMemory shard, host::Memory full) {
    const std::size_t k = shard.count;
    const host::Memory own = full.part(way.call.group.rank * k, k);
    if (shard.at != own.at) { host::detail::copy_elements(shard.at, own.at, own.bytes()); }
    spread(way, full, [k](std::size_t q) { return host::detail::Chunk{q * k, (q + 1) * k}; });
}

/// Broadcasts: the root sends to one rank of every other host.
inline void broadcast(const BetweenHosts& way, host::Memory values, std::size_t root) {
    const Group& group = way.call.group;
    const Group::Home from = group.homes[root];
    const std::size_t first = group.is_here(root) ? root : group.taker(group.host, from.place);
    constexpr int tag = 0;
    for_each_piece(way.call, values.count, [&](std::size_t at, int size) {
        const host::Memory part = values.part(at, static_cast<std::size_t>(size));
        std::size_t used = 0;
        const auto requests = way.call.lane.requests();
        if (group.rank == root) {
            for (std::size_t h = 0; h < group.hosts.size(); ++h) {
                if (h == group.host) { continue; }
                way.call.send(part.at, part.count, part.size, group.taker(h, from.place), tag, requests[used++]);
            }
        } else if (group.rank == first) {
            way.call.receive(part.at, part.count, part.size, root, tag, requests[used++]);
        }
        way.call.lane.await(way.call, requests.first(used));
    });
    way.round.meet();
    if (group.rank != first) { host::detail::copy_elements(way.input(first), values.at, values.bytes()); }
}

/// Exchanges a message each way between every pair of ranks of different hosts.
inline void all_to_all(const BetweenHosts& way, host::ConstMemory sent, host::Memory received) {
    const Group& group = way.call.group;
    const std::size_t k = sent.count / group.size();
    for (const std::size_t q : group.neighbours()) {
        const host::Memory piece = received.part(q * k, k);
        host::detail::copy_elements(way.input(q) + group.rank * piece.bytes(), piece.at, piece.bytes());
    }
    exchange_pieces(
        way.call, [&](std::size_t to) { return sent.part(to * k, group.is_here(to) ? 0 : k); },
        [&](std::size_t from) { return received.part(from * k, group.is_here(from) ? 0 : k); });
}

// The verbs that copy, by messages. Between ranks that see each other's memory they are those of shared/verbs.hpp.

inline void all_gather(const Call& call, host::ConstMemory shard, host::Memory full) {
    const std::size_t k = shard.count;
    const host::Memory own = full.part(call.group.rank * k, k);
    if (k <= call.world.options().message_elements) {
        const int size = static_cast<int>(k);
        const void* const from = shard.at == own.at ? MPI_IN_PLACE : static_cast<const void*>(shard.at);
        if (k > 0) {
            call.lane.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
                return MPI_Iallgather(from, size, word_type(full.size), full.at, size, word_type(full.size),
                                      call.channel.comm, request);
            });
        }
    } else {
        if (shard.at != own.at) { host::detail::copy_elements(shard.at, own.at, own.bytes()); }
        exchange_pieces(
            call, [&](std::size_t) { return host::ConstMemory(own); },
            [&](std::size_t from) { return full.part(from * k, k); });
    }
}

inline void broadcast(const Call& call, host::Memory values, std::size_t root) {
    for_each_piece(call, values.count, [&](std::size_t at, int size) {
        call.lane.complete(call, "MPI_Ibcast", [&](MPI_Request* request) {
            return MPI_Ibcast(values.at + at * values.size, size, word_type(values.size), static_cast<int>(root),
                              call.channel.comm, request);
        });
    });
}

inline void all_to_all(const Call& call, host::ConstMemory sent, host::Memory received) {
    const std::size_t self = call.group.rank;
    const std::size_t k = sent.count / call.group.size();
    if (k <= call.world.options().message_elements) {
        const int size = static_cast<int>(k);
        if (k > 0) {
            call.lane.complete(call, "MPI_Ialltoall", [&](MPI_Request* request) {
                return MPI_Ialltoall(sent.at, size, word_type(sent.size), received.at, size, word_type(sent.size),
                                     call.channel.comm, request);
            });
        }
    } else {
        const host::ConstMemory own = sent.part(self * k, k);
        host::detail::copy_elements(own.at, received.part(self * k, k).at, own.bytes());
        exchange_pieces(
            call, [&](std::size_t to) { return sent.part(to * k, k); },
            [&](std::size_t from) { return received.part(from * k, k); });
    }
}

}  // namespace shardkit::mpi::detail
