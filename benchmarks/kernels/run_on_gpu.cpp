// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/pin.hpp"
#include "gpu_times.hpp"
#include "report.hpp"
#include "run_kernels.hpp"

namespace benchmarks::kernels {

void run_on_gpu(const Options& options, const RowSink& sink) {
    if (options.pin) { pin_to(allowed_processors(), 0); }
    shardkit::nccl::World alone(shardkit::nccl::UniqueId::create(), 1, 0);
    shardkit::nccl::run(shardkit::DeviceMesh(std::size_t{1}), alone, [&](shardkit::Rank& rank) {
        run_kernels(rank, options, sink, GpuTimes{rank.streams(), options.graph});
    });
}

}  // namespace benchmarks::kernels
