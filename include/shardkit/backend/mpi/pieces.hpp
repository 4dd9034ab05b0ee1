// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/call.hpp>
#include <shardkit/backend/mpi/datatype.hpp>
#include <shardkit/backend/mpi/world.hpp>

namespace shardkit::mpi::detail {

/// Calls f(offset, count) for consecutive pieces of [0, count) that MPI can count; not at all for none.
template <class F>
void for_each_piece(const Call& call, std::size_t count, F f) {
    const std::size_t most = call.world.options().message_elements;
    for (std::size_t at = 0; at < count; at += most) { f(at, static_cast<int>(std::min(most, count - at))); }
}

/// Sends `count` elements from `outgoing(q)` to every other rank q and receives as many from it to `incoming(q)`,
/// piece by piece: what all-gather and all-to-all are for pieces too long for MPI's counts.
template <class T, class Outgoing, class Incoming>
void exchange_pieces(const Call& call, std::size_t count, Outgoing outgoing, Incoming incoming) {
    const std::size_t ranks = call.group.size();
    constexpr int tag = 0;
    for_each_piece(call, count, [&](std::size_t at, int size) {
        std::size_t used = 0;
        const auto requests = call.world.requests();
        for (std::size_t step = 1; step < ranks; ++step) {
            const std::size_t from = (call.group.rank + ranks - step) % ranks;
            const std::size_t to = (call.group.rank + step) % ranks;
            call.check(MPI_Irecv(incoming(from) + at, size, datatype<T>(), static_cast<int>(from), tag,
                                 call.group.comm, &requests[used++]),
                       "MPI_Irecv");
            call.check(MPI_Isend(outgoing(to) + at, size, datatype<T>(), static_cast<int>(to), tag, call.group.comm,
                                 &requests[used++]),
                       "MPI_Isend");
        }
        call.world.await(call, requests.first(used));
    });
}

}  // namespace shardkit::mpi::detail
