// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "rows.hpp"
#include "run_rank.hpp"

namespace benchmarks {

void run_on_mpi(const Options& options, const RowSink& sink) {
    shardkit::mpi::run(shardkit::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp),
                       [&](shardkit::Rank& rank) { run_rank(rank, options, sink); });
}

}  // namespace benchmarks
