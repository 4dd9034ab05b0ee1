// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/pin.hpp"
#include "fit_here.hpp"
#include "job.hpp"

namespace benchmarks::policies {

FittedLinks fit_threads(const program::MeshExtents& mesh, bool pin) {
    FittedLinks fitted;
    shardkit::threads::run(shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), [&](auto& rank) {
        if (pin) { pin_to(allowed_processors(), rank.rank()); }
        const FittedLinks found = fit_here<shardkit::threads::Engine>(rank);
        if (rank.rank() == 0) { fitted = found; }
    });
    return fitted;
}

}  // namespace benchmarks::policies
