// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "train_on_rank.hpp"

namespace train_gpt {

template <class T>
Results train_as(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    const auto on_rank = [&](auto& rank) {
        using Engine = sk::EngineOf<decltype(rank)>;
        sk::Context<Engine>& context = rank;
        train_on_rank<T>(context, job, results);
    };
    const auto& mesh = job.options.mesh;
    const sk::DeviceMesh ranks(mesh.dp, mesh.tp, mesh.cp);
    if (job.options.engine == EngineKind::self) {
        sk::self::run(ranks, on_rank, rank_options(job));
    } else {
        using sk::threads::Overlap;
        const Overlap beside = job.options.spare_processor ? Overlap::threads : Overlap::deferred;
        sk::threads::run(ranks, on_rank, rank_options(job), {.overlap = job.chosen.ahead ? beside : Overlap::none});
    }
    return results;
}

}  // namespace train_gpt
