// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/cub/kernels.cuh>

#include <shardkit/backend/cub/kernel_launches.hpp>
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

#include <shardkit/detail/show_macros.inc>
