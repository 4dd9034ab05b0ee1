// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/mpi/across.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/verbs.hpp>

namespace shardkit::mpi::detail {

// The verbs that copy, by messages. The verbs of shared memory, between ranks that see each other's memory, take a
// Round instead of the Call.
using shared::detail::all_gather;
using shared::detail::all_to_all;
using shared::detail::broadcast;

template <class T>
void all_gather(const Call& call, const T* shard, std::span<T> full) {
    const std::size_t k = full.size() / call.group.size();
    T* const own = full.data() + call.group.rank * k;
    if (k <= call.world.options().message_elements) {
        const int size = static_cast<int>(k);
        const void* const from = shard == own ? MPI_IN_PLACE : static_cast<const void*>(shard);
        if (k > 0) {
            call.lane.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
                return MPI_Iallgather(from, size, datatype<T>(), full.data(), size, datatype<T>(), call.channel.comm,
                                      request);
            });
        }
    } else {
        if (shard != own) { host::detail::copy_elements(shard, own, k); }
        exchange_pieces<T>(
            call, [&](std::size_t) { return std::span<const T>(own, k); },
            [&](std::size_t from) { return full.subspan(from * k, k); });
    }
}

template <class T>
void broadcast(const Call& call, std::span<T> values, std::size_t root) {
    for_each_piece(call, values.size(), [&](std::size_t at, int size) {
        call.lane.complete(call, "MPI_Ibcast", [&](MPI_Request* request) {
            return MPI_Ibcast(values.data() + at, size, datatype<T>(), static_cast<int>(root), call.channel.comm,
                              request);
        });
    });
}

template <class T>
void all_to_all(const Call& call, std::span<const T> sent, std::span<T> received) {
    const std::size_t self = call.group.rank;
    const std::size_t k = sent.size() / call.group.size();
    if (k <= call.world.options().message_elements) {
        const int size = static_cast<int>(k);
        if (k > 0) {
            call.lane.complete(call, "MPI_Ialltoall", [&](MPI_Request* request) {
                return MPI_Ialltoall(sent.data(), size, datatype<T>(), received.data(), size, datatype<T>(),
                                     call.channel.comm, request);
            });
        }
    } else {
        host::detail::copy_elements(sent.data() + self * k, received.data() + self * k, k);
        exchange_pieces<T>(
            call, [&](std::size_t to) { return sent.subspan(to * k, k); },
            [&](std::size_t from) { return received.subspan(from * k, k); });
    }
}

}  // namespace shardkit::mpi::detail
