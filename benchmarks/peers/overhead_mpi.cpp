// SPDX-License-Identifier: Apache-2.0
// overhead_mpi ROUNDS: what the verbs of a Sharded cost over the bare calls of the engine `mpi`.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "measure_overhead.hpp"

int main(int count, char** arguments) {
    using namespace benchmarks;
    try {
        const peers::Command words(arguments, arguments + count);
        const std::size_t rounds = peers::number_at(words, 1);
        const shardkit::mpi::Environment mpi;
        shardkit::mpi::run(shardkit::DeviceMesh(shardkit::mpi::Environment::size()), [&](auto& rank) {
            shardkit::Context<shardkit::mpi::Engine<>>& context = rank;
            peers::measure_overhead(context, rounds);
        });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overhead_mpi: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
