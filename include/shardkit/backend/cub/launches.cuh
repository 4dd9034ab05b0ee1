// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/cub/kernels.cuh>

#include <tuple>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/comm/any_stream.hpp>

namespace shardkit::engine {

/// Launches any kernel that gpu::Kernels has.
template <class Kernel>
struct DeviceLaunchOf {
    static void run(const AnyStream& stream, const Kernel& kernel) {
        kernel.template on<gpu::Kernels>(gpu::TimelineRef(stream));
    }
};

}  // namespace shardkit::engine

namespace shardkit::gpu {

/// Makes the launch of each kernel for files that nvcc does not compile, when it is explicitly instantiated in a file
/// of nvcc that the program links as an object file:
///     template struct shardkit::gpu::KernelLaunches<shardkit::engine::Fill<float>>;
/// The list is a function for the reason that Launches gives.
template <class... Kernel>
struct KernelLaunches {
    using Calls = std::tuple<engine::KernelLaunch<Kernel>...>;
    static Calls calls() {
        (static_cast<void>(&engine::DeviceLaunchIs<Kernel>::known), ...);
        return Calls(&engine::DeviceLaunchOf<Kernel>::run...);
    }
};

}  // namespace shardkit::gpu

#include <shardkit/detail/show_macros.inc>
