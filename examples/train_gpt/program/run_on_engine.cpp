// SPDX-License-Identifier: Apache-2.0
#include "run_on_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#ifdef TRAIN_GPT_MPI  // else nobody gets here with --engine mpi: see Processes
#include <shardkit/backend/mpi/run.hpp>
#endif
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "plan_summary.hpp"

namespace train_gpt {

namespace {

/// Sets the times after which ranks give up, and where they write their last calls, for either engine.
template <class EngineOptions>
void set_deadline(const Options& options, EngineOptions& engine) {
    if (options.deadline > 0) {
        constexpr double longest = 1e12;  // milliseconds, some thirty years
        engine.timeout = std::chrono::milliseconds(static_cast<long long>(std::min(options.deadline * 1e3, longest)));
        engine.finish_timeout = engine.timeout;
    }
    engine.record = options.record;
    engine.on_late = [](const std::string& text) { std::fprintf(stderr, "train_gpt: %s\n", text.c_str()); };
}

}  // namespace

PlanSummary make_plan(const Options& options) {
#ifdef TRAIN_GPT_MPI
    if (options.engine == EngineKind::mpi) { return make_plan(options, sk::mpi::traits_of()); }
#endif
    return make_plan(options, sk::threads::traits);
}

void run_on_engine(const Job& job, const RankFunction& on_rank) {
    const auto& extents = job.options.mesh;
    const sk::ExpertMesh mesh(sk::DeviceMesh(extents.dp, extents.tp, extents.cp), job.options.ep);
#ifdef TRAIN_GPT_MPI
    if (job.options.engine == EngineKind::mpi) {
        sk::mpi::Options launch;
        launch.ranks_per_host = job.options.ranks_per_host;
        launch.overlap = job.chosen.ahead;
        // Ranks that follow a schedule have compared it, and what it does not say they compare in each step.
        if (job.chosen.schedule) { launch.compare_calls = sk::CompareCalls::each_step; }
        set_deadline(job.options, launch);
        return sk::mpi::run(mesh, on_rank, rank_options(job.chosen), launch);
    }
#endif
    sk::threads::LaunchOptions launch;
    // Where ranks use all processors, threads that communicate would wait for one.
    if (job.chosen.ahead && job.options.spare_processor) { launch.overlap = sk::threads::Overlap::threads; }
    set_deadline(job.options, launch);
    sk::threads::run(mesh, on_rank, rank_options(job.chosen), launch);
}

}  // namespace train_gpt
