// SPDX-License-Identifier: Apache-2.0
// overhead_mpi ROUNDS: what the verbs of a Sharded cost over the bare calls of the engine `mpi`.

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "measure_overhead.hpp"

int main(int count, char** arguments) {
    using namespace benchmarks;
    return peers::run_program("overhead_mpi", count, arguments, [](const peers::Command& words) {
        const std::size_t rounds = peers::number_at(words, 1);
        const shardkit::mpi::Environment mpi;
        shardkit::mpi::run(shardkit::DeviceMesh(shardkit::mpi::Environment::size()),
                           [&](shardkit::Rank& rank) { peers::measure_overhead(rank, rounds); });
    });
}
