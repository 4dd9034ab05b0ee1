// SPDX-License-Identifier: Apache-2.0
// The engines whose ranks are in this process, in one unit: what they include and instantiate is mostly the same.
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "rows.hpp"
#include "run_rank.hpp"

namespace benchmarks {

void run_on_self(const Options& options, const RowSink& sink) {
    shardkit::self::run(shardkit::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp),
                        [&](shardkit::Rank& rank) { run_rank(rank, options, sink); });
}

void run_on_threads(const Options& options, const RowSink& sink) {
    shardkit::threads::run(shardkit::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp),
                           [&](shardkit::Rank& rank) { run_rank(rank, options, sink); });
}

}  // namespace benchmarks
