// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../examples/common/place.hpp"
#include "rows.hpp"
#include "run_rank.hpp"

namespace benchmarks {

void run_on_nccl(const Options& options, const RowSink& sink) {
    const shardkit::DeviceMesh mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp);
    const auto measured = [&](shardkit::Rank& rank) { run_rank(rank, options, sink); };
    shardkit::nccl::Options of_world;
    of_world.staging_bytes = options.staging_bytes;
    if (program::Place::is_launched()) {
        shardkit::nccl::run(mesh, measured, {}, of_world);
    } else {
        shardkit::nccl::World alone(shardkit::nccl::UniqueId::create(), 1, 0, of_world);
        shardkit::nccl::run(mesh, alone, measured);
    }
}

}  // namespace benchmarks
