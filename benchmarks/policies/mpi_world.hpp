// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/run.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// Of the World in which steps are measured and links are fitted. Where it overlaps, calls that nothing is beside are
/// handed to its thread too, and wait for that to wake.
inline shardkit::mpi::Options mpi_world(const Options& options) {
    shardkit::mpi::Options mpi;
    mpi.overlap = options.overlaps();
    return mpi;
}

}  // namespace benchmarks::policies
