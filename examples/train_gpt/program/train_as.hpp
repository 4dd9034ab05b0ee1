// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "train_on_rank.hpp"

namespace train_gpt {

/// Trains on threads. `Gather`: what gathers of the blocks carry.
template <class T, class Gather>
Results train_on_threads(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    const auto on_rank = [&](auto& rank) {
        using Engine = sk::EngineOf<decltype(rank)>;
        sk::Context<Engine>& context = rank;
        train_on_rank<T, Gather>(context, job, results);
    };
    const auto& mesh = job.options.mesh;
    const sk::DeviceMesh ranks(mesh.dp, mesh.tp, mesh.cp);
    sk::threads::LaunchOptions launch;
    // Where ranks use all processors, threads that communicate would wait for one.
    if (job.chosen.ahead && job.options.spare_processor) { launch.overlap = sk::threads::Overlap::threads; }
    set_deadline(job.options, launch);
    sk::threads::run(ranks, on_rank, rank_options(job), launch);
    return results;
}

template <class T>
Results train_as(const Job& job) {
    return train_on_threads<T, T>(job);
}

}  // namespace train_gpt
