// SPDX-License-Identifier: Apache-2.0
// overhead RANKS ROUNDS: what the verbs of a Sharded cost over the bare calls of the engine `threads`.

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "measure_overhead.hpp"

int main(int count, char** arguments) {
    using namespace benchmarks;
    return peers::run_program("overhead", count, arguments, [](const peers::Command& words) {
        const std::size_t rounds = peers::number_at(words, 2);
        shardkit::threads::run(shardkit::DeviceMesh(peers::number_at(words, 1)),
                               [&](shardkit::Rank& rank) { peers::measure_overhead(rank, rounds); });
    });
}
