// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "report.hpp"
#include "run_kernels.hpp"

namespace benchmarks::kernels {

void run_on_host(const Options& options, const RowSink& sink) {
    shardkit::threads::run(shardkit::DeviceMesh(options.ranks), [&](auto& rank) {
        if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
        shardkit::Context& context = rank;
        run_kernels(context, options, sink, [](Row&, Workload& workload, const auto& measure) { measure(workload); });
    });
}

}  // namespace benchmarks::kernels
