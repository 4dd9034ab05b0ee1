// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <shardkit/backend/host/processor.hpp>
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
        sk::threads::LaunchOptions launch;
        if (job.chosen.ahead) {
            const std::size_t processors = shardkit::host::detail::allowed_cpus();
            launch.overlap = sk::threads::Overlap::deferred;
            launch.helpers = std::min(processors - std::min(processors, mesh.world()), mesh.world());
        }
        sk::threads::run(ranks, on_rank, rank_options(job), launch);
    }
    return results;
}

}  // namespace train_gpt
