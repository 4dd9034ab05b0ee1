// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/between_hosts.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/world.hpp>

namespace shardkit::mpi::detail {

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
