// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::mpi {

/// Says how a World communicates. The same on every rank.
struct Options {
    /// Lets threads of the engine's own make all MPI calls, so that a collective runs while the rank computes.
    /// Needs MPI_THREAD_SERIALIZED, and MPI_THREAD_MULTIPLE if the rank makes MPI calls of its own meanwhile.
    /// Worth its hand-over (microseconds a call) where a rank has more than one processor.
    bool overlap = false;

    /// Gives reductions, with overlap, a thread, communicators, places in shared memory and staging memory of their
    /// own, so that none waits behind a gather, nor a gather behind it. Off: all communication has one order.
    bool separate_reductions = true;

    /// Lets ranks of one host read each other's buffers, where the host allows it; nothing travels between them then.
    /// Off: all goes through messages.
    bool shared_memory = true;

    /// Makes hosts for tests: each so many ranks of the world, in their order, are taken to be a host. 0: the hosts
    /// that there are.
    std::size_t ranks_per_host = 0;

    /// Lets the ranks of a collective compare verb, type, count, operation, root and subject before any data moves:
    /// calls that disagree are named on every rank. Costs one all-reduce of 24 bytes per collective, within a host
    /// nothing. At each_step: one in all, when an optimizer steps or the program says so. Until then ranks that call
    /// different things may get wrong bytes, or wait until the timeout. Where ranks of several hosts share memory
    /// within each, it is calls with a subject, as those of containers are, that are not compared: of their memory
    /// ranks remember from the first time whether their peers see it. Memory of theirs that no longer is what it was
    /// is an error. Off: where memory is not shared, never; where it is, each call.
    CompareCalls compare_calls = CompareCalls::each_call;

    /// Limits how long a rank waits for its peers to make the same call.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);

    /// Sizes the memory in which a rank receives its peers' addends, for each thread that makes MPI calls; at least 1
    /// KiB for each rank.
    std::size_t staging_bytes = std::size_t{4} << 20U;

    /// Bounds the elements of one MPI message: MPI counts with an int, so longer spans travel in pieces.
    std::size_t message_elements = std::size_t{1} << 30U;
};

}  // namespace shardkit::mpi
