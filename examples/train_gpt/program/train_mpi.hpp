// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "mpi_engine.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {

template <class T>
Results train_mpi(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    const auto& mesh = job.options.mesh;
    sk::mpi::Options options;
    options.ranks_per_host = job.options.ranks_per_host;
    options.overlap = job.chosen.ahead;
    // Ranks that follow a schedule have compared it, and what it does not say they compare in each step.
    if (job.chosen.schedule) { options.compare_calls = sk::CompareCalls::each_step; }
    set_deadline(job.options, options);
    sk::mpi::run(
        sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp),
        [&](auto& rank) {
            using Engine = sk::EngineOf<decltype(rank)>;
            sk::Context<Engine>& context = rank;
            train_on_rank<T>(context, job, results);
        },
        rank_options(job), options);
    return results;
}

}  // namespace train_gpt
