// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/pin.hpp"
#include "gpu_times.hpp"
#include "report.hpp"
#include "run_kernels.hpp"

namespace benchmarks::kernels {

void run_on_gpu(const Options& options, const RowSink& sink) {
    using Engine = shardkit::nccl::Engine<shardkit::gpu::Kernels>;
    if (options.pin) { pin_to(allowed_processors(), 0); }
    shardkit::nccl::World alone(shardkit::nccl::UniqueId::create(), 1, 0);
    shardkit::nccl::run<Engine>(shardkit::DeviceMesh(std::size_t{1}), alone, [&](auto& rank) {
        shardkit::Context<Engine>& context = rank;
        const shardkit::Streams<shardkit::gpu::TimelineRef> streams{
            context.compute_stream(), context.communication_stream(), context.reduction_stream()};
        run_kernels(context, options, sink, GpuTimes{streams, options.graph});
    });
}

}  // namespace benchmarks::kernels
