// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "report.hpp"
#include "run_kernels.hpp"

namespace benchmarks::kernels {

void run_on_host(const Options& options, const RowSink& sink) {
    shardkit::threads::run(shardkit::DeviceMesh(options.ranks), [&](shardkit::Rank& rank) {
        if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
        run_kernels(rank, options, sink, [](Row&, Workload& workload, const auto& measure) { measure(workload); });
    });
}

}  // namespace benchmarks::kernels
