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

// The verbs that copy, where not all ranks read each other's memory. Between those that do they are those of
// shared/verbs.hpp.

namespace shardkit::mpi::detail {

/// Distributes the ranks' pieces of `full`; every rank already has its own in place. piece_of(q) is rank q's range.
/// @pre `full` is the output that the round shows
template <class PieceOf>
void spread(const Messages& way, host::Memory full, PieceOf piece_of) {
    const Call& call = way.call;
    const Group& group = call.group;
    const std::size_t self = group.rank;
    const auto copy = [&](std::size_t q, std::size_t neighbour) {
        const host::detail::Chunk piece = piece_of(q);
        const std::byte* const theirs = way.round->output(group.homes[neighbour].place);
        const host::Memory to = full.part(piece.begin, piece.size());
        host::detail::copy_elements(theirs + piece.begin * full.size, to.at, to.bytes());
    };
    std::size_t longest = 0;
    for (std::size_t q = 0; q < group.size(); ++q) { longest = std::max(longest, piece_of(q).size()); }
    way.meet();  // the neighbours' pieces are there, and nobody reads what is overwritten now
    constexpr int tag = 0;
    for_each_piece(call, longest, [&](std::size_t at, int most) {
        const auto part = [&](std::size_t q) {
            const std::size_t size = piece_of(q).size();
            return full.part(piece_of(q).begin + at,
                             std::min(size - std::min(size, at), static_cast<std::size_t>(most)));
        };
        std::size_t used = 0;
        const auto requests = call.lane.requests();
        for (std::size_t q = 0; q < group.size(); ++q) {
            const host::Memory theirs = part(q);
            const host::Memory own = part(self);
            if (way.passes(q, self) && theirs.count > 0) {
                call.receive(theirs.at, theirs.count, theirs.size, q, tag, requests[used++]);
            }
            if (way.passes(self, q) && own.count > 0) {
                call.send(own.at, own.count, own.size, q, tag, requests[used++]);
            }
        }
        for (std::size_t q = 0; at == 0 && q < group.size(); ++q) {
            if (q != self && way.reads(q)) { copy(q, q); }
        }
        call.lane.await(call, requests.first(used));
    });
    way.meet();  // the pieces that the neighbours received are there
    for (std::size_t q = 0; q < group.size(); ++q) {
        if (q == self || way.reads(q) || way.passes(q, self)) { continue; }
        copy(q, group.taker(group.host, group.homes[q].place));
    }
}

inline void all_gather(const Messages& way, host::ConstMemory shard, host::Memory full) {
    const std::size_t k = shard.count;
    const host::Memory own = full.part(way.call.group.rank * k, k);
    if (shard.at != own.at) { host::detail::copy_elements(shard.at, own.at, own.bytes()); }
    spread(way, full, [k](std::size_t q) { return host::detail::Chunk{q * k, (q + 1) * k}; });
}

inline void broadcast(const Messages& way, host::Memory values, std::size_t root) {
    const Group& group = way.call.group;
    constexpr int tag = 0;
    for_each_piece(way.call, values.count, [&](std::size_t at, int size) {
        const host::Memory part = values.part(at, static_cast<std::size_t>(size));
        std::size_t used = 0;
        const auto requests = way.call.lane.requests();
        for (std::size_t q = 0; group.rank == root && q < group.size(); ++q) {
            if (way.passes(root, q)) { way.call.send(part.at, part.count, part.size, q, tag, requests[used++]); }
        }
        if (way.passes(root, group.rank)) {
            way.call.receive(part.at, part.count, part.size, root, tag, requests[used++]);
        }
        way.call.lane.await(way.call, requests.first(used));
    });
    way.meet();
    if (group.rank == root || way.passes(root, group.rank)) { return; }
    const std::size_t first = group.is_here(root) ? root : group.taker(group.host, group.homes[root].place);
    host::detail::copy_elements(way.input(first), values.at, values.bytes());
}

/// Copies what this rank reads, and exchanges a message each way with every other rank.
inline void all_to_all(const Messages& way, host::ConstMemory sent, host::Memory received) {
    const std::size_t self = way.call.group.rank;
    const std::size_t k = sent.count / way.call.group.size();
    const auto reads = [&](std::size_t q) { return q == self || way.reads(q); };
    for (std::size_t q = 0; q < way.call.group.size(); ++q) {
        if (!reads(q)) { continue; }
        const host::Memory piece = received.part(q * k, k);
        const std::byte* const theirs = q == self ? sent.at : way.input(q);
        host::detail::copy_elements(theirs + self * piece.bytes(), piece.at, piece.bytes());
    }
    exchange_pieces(
        way.call, [&](std::size_t to) { return sent.part(to * k, reads(to) ? 0 : k); },
        [&](std::size_t from) { return received.part(from * k, reads(from) ? 0 : k); });
}

}  // namespace shardkit::mpi::detail
