// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>

namespace shardkit::mpi {

/// How a World communicates. The same on every rank.
struct Options {
    /// Threads of the engine's own make all MPI calls, so that a collective runs while the rank computes.
    /// Needs MPI_THREAD_SERIALIZED, and MPI_THREAD_MULTIPLE if the rank makes MPI calls of its own meanwhile.
    /// Worth its hand-over (microseconds a call) where a rank has more than one processor.
    bool overlap = false;

    /// With overlap, reductions have a thread, communicators, places in shared memory and staging memory of their
    /// own, so that none waits behind a gather, nor a gather behind it. Off: all communication has one order.
    bool separate_reductions = true;

    /// Ranks of one host read each other's buffers, where the host allows it; nothing travels between them then. Off:
    /// all goes through messages.
    bool shared_memory = true;

    /// For tests: each so many ranks of the world, in their order, are taken to be a host. 0: the hosts that there
    /// are.
    std::size_t ranks_per_host = 0;

    /// Before any data moves, the ranks of a collective compare verb, type, count, operation, root and subject: calls
    /// that disagree are named on every rank, and a rank that is gone is an error instead of a hang. Costs one
    /// all-reduce of 24 bytes per collective, within a host nothing. Off, a call that a rank does not make hangs, as
    /// in plain MPI, where memory is not shared; where it is, ranks always compare.
    bool compare_calls = true;

    /// How long a rank waits for its peers to make the same call.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);

    /// Memory in which a rank receives its peers' addends, for each thread that makes MPI calls; at least 1 KiB for
    /// each rank.
    std::size_t staging_bytes = std::size_t{4} << 20U;

    /// Elements of one MPI message: MPI counts with an int, so longer spans travel in pieces.
    std::size_t message_elements = std::size_t{1} << 30U;
};

}  // namespace shardkit::mpi
