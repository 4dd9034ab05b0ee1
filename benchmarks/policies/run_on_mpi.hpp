// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "job.hpp"
#include "mpi_world.hpp"
#include "run_rank.hpp"

namespace benchmarks::policies {

template <class T>
void run_on_mpi(const Job& job, const RowSink& sink) {
    const Reference<T> reference = train_alone<T>(job);
    shardkit::mpi::run(
        shardkit::DeviceMesh(job.mesh.dp, job.mesh.tp, job.mesh.cp),
        [&](shardkit::Rank& rank) { run_rank<T>(rank, job, reference, sink); }, {}, mpi_world(job.options));
}

}  // namespace benchmarks::policies
