// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <shardkit/backend/cub/launched_kernels.hpp>
#include <shardkit/backend/host/device_kernels.hpp>

#include "../unit/backend/nccl/host_functions.hpp"

/// What gpu::Kernels launch, as loops in the stand-in's streams: the same passes, cut into the same vectors. A
/// program of several files includes it in each that launches kernels.
namespace looped_kernels {

/// What the passes want of a launch.
class Launch {
  public:
    using Stream = shardkit::gpu::TimelineRef;

    explicit Launch(const Stream& stream) : stream_(stream) {}

    template <class Work>
    void operator()(std::uint64_t count, const Work& work, std::string_view /*kernel*/) const {
        stream_.submit([count, work] {
            for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
        });
    }

  private:
    host_functions::LaunchedStream stream_;
};

/// The norm and what begins a step are the host's.
struct Kernels : host_functions::Kernels, shardkit::gpu::detail::LaunchedKernels<Launch> {
    using Launched = shardkit::gpu::detail::LaunchedKernels<Launch>;
    using Launched::accumulate;
    using Launched::combine;
    using Launched::convert;
    using Launched::convert_rows;
    using Launched::copy_tensors;
    using Launched::fill;
    using Launched::for_each_index;
    using Launched::run_once;
    using Launched::update;
    using Launched::update_batch;
    using Launched::update_entry;
};

template <class Kernel>
concept Looped = requires {
    sizeof(Kernel);
};

}  // namespace looped_kernels

template <host_functions::Launched Kernel>
requires looped_kernels::Looped<Kernel>
struct shardkit::engine::DeviceLaunchOf<Kernel> {
    static void run(const shardkit::Stream& stream, const Kernel& kernel) {
        host_functions::Given::all().add(typeid(Kernel));
        kernel.template on<looped_kernels::Kernels>(shardkit::gpu::TimelineRef(stream));
    }
};
