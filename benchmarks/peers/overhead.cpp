// SPDX-License-Identifier: Apache-2.0
// overhead RANKS ROUNDS: what the verbs of a Sharded cost over the bare calls of the engine `threads`.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "measure_overhead.hpp"

int main(int count, char** arguments) {
    using namespace benchmarks;
    try {
        const peers::Command words(arguments, arguments + count);
        const std::size_t rounds = peers::number_at(words, 2);
        shardkit::threads::run(shardkit::DeviceMesh(peers::number_at(words, 1)), [&](auto& rank) {
            shardkit::Context<shardkit::threads::Engine>& context = rank;
            peers::measure_overhead(context, rounds);
        });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overhead: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
