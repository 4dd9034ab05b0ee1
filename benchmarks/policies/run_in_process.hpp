// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "job.hpp"
#include "run_rank.hpp"

namespace benchmarks::policies {

template <class T>
Reference<T> train_alone(const Job& job) {
    shardkit::self::World world;
    shardkit::Rank rank(shardkit::DeviceMesh<1>{}.grid(), shardkit::Communicator(world), {});
    const shardkit::DynamicPolicy alone(shardkit::NoShard{});
    return Trainer<T>(rank, job.options, job.busy, alone).reference();
}

template <class T>
void run_in_process(const Job& job, const RowSink& sink) {
    const Reference<T> reference = train_alone<T>(job);
    const shardkit::DeviceMesh mesh(job.mesh.dp, job.mesh.tp, job.mesh.cp);
    const auto on_rank = [&](shardkit::Rank& rank) { run_rank<T>(rank, job, reference, sink); };
    if (job.options.engine == EngineKind::self) {
        shardkit::self::run(mesh, on_rank);
    } else {
        using shardkit::threads::Overlap;
        shardkit::threads::run(mesh, on_rank, {},
                               {.overlap = job.options.overlaps() ? Overlap::threads : Overlap::none});
    }
}

}  // namespace benchmarks::policies
