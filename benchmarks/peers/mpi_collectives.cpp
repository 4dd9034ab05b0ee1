// SPDX-License-Identifier: Apache-2.0
// mpi_collectives compare|trust: measures, as the input of its rank 0 says, MPI's own collectives (variant raw) and
// those of the engine `mpi`, whose ranks compare their calls or trust each other.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/machine.hpp"
#include "../common/pin.hpp"
#include "process_relay.hpp"
#include "raw_mpi.hpp"
#include "serve_collectives.hpp"

namespace {

using namespace benchmarks;

std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data());
    version.resize(std::min(version.find('\n'), version.size()));
    return version;
}

void serve(const std::string& calls) {
    if (calls != "compare" && calls != "trust") { throw std::invalid_argument("expected compare or trust"); }
    const shardkit::mpi::Environment mpi;
    peers::ProcessRelay relay;
    shardkit::mpi::Options options;
    options.compare_calls = calls == "compare";
    using Engine = shardkit::mpi::Engine<>;
    shardkit::mpi::run(
        shardkit::DeviceMesh(shardkit::mpi::Environment::size()),
        [&](auto& rank) {
            shardkit::Context<Engine>& context = rank;
            pin_to(allowed_processors(), context.rank());
            if (context.rank() == 0) {
                const Machine machine = Machine::read();
                peers::answer({{"ranks", context.world_size()},
                               {"compiler", machine.compiler},
                               {"flags", machine.flags},
                               {"mpi", library_version()},
                               {"pinned", true}});
            }
            peers::serve_collectives(
                context, [&] { return relay.next(); },
                [&](const std::string& variant, const std::string& verb, std::size_t bytes) {
                    if (variant != "raw") { return peers::library_workload(context, verb, bytes); }
                    return peers::with_named_verb(verb, [&]<class V>(V) -> std::unique_ptr<Workload> {
                        return std::make_unique<peers::RawMpi<V>>(peers::shape_of<V>(context, bytes));
                    });
                });
        },
        {}, options);
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const peers::Command words(arguments, arguments + count);
        serve(peers::word_at(words, 1));
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_collectives: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
