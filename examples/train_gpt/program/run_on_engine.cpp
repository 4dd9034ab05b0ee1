// SPDX-License-Identifier: Apache-2.0
#include "run_on_engine.hpp"

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "plan_summary.hpp"

namespace train_gpt {

PlanSummary make_plan(const Options& options) {
    return make_plan(options, options.engine == EngineKind::mpi ? mpi_traits() : sk::threads::traits);
}

void run_on_engine(const Job& job, const RankFunction& on_rank) {
    if (job.options.engine == EngineKind::mpi) { return run_mpi(job, on_rank); }
    const auto& mesh = job.options.mesh;
    sk::threads::LaunchOptions launch;
    // Where ranks use all processors, threads that communicate would wait for one.
    if (job.chosen.ahead && job.options.spare_processor) { launch.overlap = sk::threads::Overlap::threads; }
    set_deadline(job.options, launch);
    sk::threads::run(sk::ExpertMesh(sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), job.options.ep), on_rank,
                     rank_options(job.chosen), launch);
}

}  // namespace train_gpt
