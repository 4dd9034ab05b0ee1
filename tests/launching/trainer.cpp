// SPDX-License-Identifier: Apache-2.0
// One process of a launcher's job, on the stand-in: meets the others as its variables say, and prints its place. The
// stand-in's NCCL knows the ranks of one process only, so each process plays its peers too: all ranks connect by the
// id that this one was given, and reduce.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>

#include "../unit/backend/nccl/gpu_ranks.hpp"
#include "../unit/backend/verb_checks.hpp"

int main() {
    try {
        namespace sk = shardkit;
        const auto launcher = sk::nccl::Launcher::from_environment();
        // The stand-in numbers the ids of a process: no other process would make the one that rank 0 hands out.
        for (int made = 0; launcher.rank() == 0 && made < 6; ++made) { sk::nccl::UniqueId::create(); }
        const sk::nccl::Options options = gpu_ranks::patient();
        const sk::nccl::UniqueId id = launcher.unique_id(options.timeout);
        const auto outcomes = gpu_ranks::each_in_a_thread(launcher.world_size(), [&](std::size_t rank) {
            sk::nccl::World world(id, launcher.world_size(), rank, options);
            verb_checks::check_all_reduce<float, float>(gpu_ranks::Comm(world), 10, 1);
            world.finish();
        });
        const std::string error = gpu_ranks::first_error(outcomes);
        std::printf("rank %zu of %zu, GPU %d, id %s, %s\n", launcher.rank(), launcher.world_size(), launcher.device(),
                    sk::nccl::native(id).internal, error.empty() ? "connected" : error.c_str());
        return error.empty() ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
