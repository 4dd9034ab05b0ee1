// SPDX-License-Identifier: Apache-2.0
// In place of run_on_mpi.cpp where the build found no MPI; the flags are refused before.
#include <stdexcept>

#include "run_on_mpi.hpp"

namespace benchmarks::reshard {

void run_on_mpi(std::size_t /*ranks*/, const std::function<void(shardkit::Rank&)>& /*time*/) {
    throw std::logic_error("run_on_mpi: built without MPI");
}

}  // namespace benchmarks::reshard
