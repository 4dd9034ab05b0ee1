// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "run_on_engine.hpp"

namespace train_gpt {

void run_mpi(const Job& job, const RankFunction& on_rank) {
    const auto& mesh = job.options.mesh;
    sk::mpi::Options options;
    options.ranks_per_host = job.options.ranks_per_host;
    options.overlap = job.chosen.ahead;
    // Ranks that follow a schedule have compared it, and what it does not say they compare in each step.
    if (job.chosen.schedule) { options.compare_calls = sk::CompareCalls::each_step; }
    set_deadline(job.options, options);
    sk::mpi::run(sk::ExpertMesh(sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), job.options.ep), on_rank,
                 rank_options(job.chosen), options);
}

sk::engine::Traits mpi_traits() { return sk::mpi::traits_of(); }

}  // namespace train_gpt
