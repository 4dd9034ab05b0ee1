// SPDX-License-Identifier: Apache-2.0
#include "run_on_mpi.hpp"

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace benchmarks::reshard {

void run_on_mpi(std::size_t ranks, const std::function<void(shardkit::Rank&)>& time) {
    shardkit::mpi::run(shardkit::DeviceMesh(ranks), time);
}

}  // namespace benchmarks::reshard
