// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/pin.hpp"
#include "fit_here.hpp"
#include "job.hpp"
#include "mpi_world.hpp"

namespace benchmarks::policies {

FittedLinks fit_mpi(const Options& options, const program::MeshExtents& mesh) {
    FittedLinks fitted;
    shardkit::mpi::run(
        shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp),
        [&](auto& rank) {
            if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
            fitted = fit_here(rank);
        },
        {}, mpi_world(options));
    return fitted;
}

}  // namespace benchmarks::policies
