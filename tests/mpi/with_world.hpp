// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/staged.hpp>
#include <shardkit/backend/mpi/world.hpp>

namespace mpi_test {

namespace sk = shardkit;

/// A rank that waits longer than this has lost its peers: the test fails instead of hanging.
inline sk::mpi::Options patient(sk::mpi::Options options = {}) {
    options.timeout = std::chrono::seconds(60);
    return options;
}

/// f(communicator over all processes) in a World of its own.
template <class Sums = sk::mpi::Exchange, class F>
void with_world(const sk::mpi::Options& options, F f) {
    sk::mpi::World world(MPI_COMM_WORLD, patient(options));
    f(sk::mpi::Communicator<Sums>(world));
    world.finish();
}

/// Every way in which a World can do the same: with a thread of its own, without comparing calls, in small blocks and
/// pieces that MPI's counts could hold many times over.
inline constexpr sk::mpi::Options ways[] = {
    {},
    {.overlap = true},
    {.compare_calls = false},
    {.staging_bytes = 4000, .message_elements = 100},
};

}  // namespace mpi_test
