// SPDX-License-Identifier: Apache-2.0
// threads_collectives RANKS: measures collectives of the engine `threads`, and std::barrier, as its input says.
#include <barrier>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/machine.hpp"
#include "../common/pin.hpp"
#include "serve_collectives.hpp"
#include "std_barrier.hpp"
#include "thread_relay.hpp"

namespace {

using namespace benchmarks;

void serve(std::size_t ranks) {
    peers::ThreadRelay relay(ranks);
    std::barrier<> shared(static_cast<std::ptrdiff_t>(ranks));
    const cpu_set_t allowed = allowed_processors();
    shardkit::threads::run(shardkit::DeviceMesh(ranks), [&](auto& rank) {
        using Engine = shardkit::threads::Engine;
        shardkit::Context<Engine>& context = rank;
        pin_to(allowed, context.rank());
        if (context.rank() == 0) {
            const Machine machine = Machine::read();
            peers::answer({{"ranks", context.world_size()},
                           {"compiler", machine.compiler},
                           {"flags", machine.flags},
                           {"pinned", true}});
        }
        peers::serve_collectives(
            context, [&] { return relay.next(context.rank()); },
            [&](const std::string& variant, const std::string& verb, std::size_t bytes) -> std::unique_ptr<Workload> {
                if (variant == "std") { return std::make_unique<peers::StdBarrier>(shared); }
                return peers::library_workload(context, verb, bytes);
            });
    });
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const peers::Command words(arguments, arguments + count);
        serve(peers::number_at(words, 1));
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "threads_collectives: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
