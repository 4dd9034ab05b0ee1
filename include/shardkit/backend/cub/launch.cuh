// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/require_cccl.cuh>

#include <cub/device/device_for.cuh>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>

namespace shardkit::gpu {

template <class Work>
void DeviceLaunch::operator()(std::uint64_t count, const Work& work, std::string_view kernel) const {
    if (count == 0) { return; }
    const gpu::DeviceGuard on_device(stream_.device());
    gpu::check(::cub::DeviceFor::Bulk(count, work, stream_.native()), kernel);
}

}  // namespace shardkit::gpu
