// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/require_cccl.cuh>

#include <cstdint>
#include <string_view>
#include <tuple>

#include <cub/device/device_for.cuh>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>

namespace shardkit::gpu::detail {

template <class Work>
void DeviceLaunch::operator()(std::uint64_t count, const Work& work, std::string_view kernel) const {
    if (count == 0) { return; }
    const DeviceGuard on_device(stream_.device());
    check(::cub::DeviceFor::Bulk(count, work, stream_.native()), kernel);
}

}  // namespace shardkit::gpu::detail

namespace shardkit::gpu {

/// Makes, explicitly instantiated in a file of nvcc's, the device code of each Work and the launch that other files
/// link with:
///     template struct shardkit::gpu::Launches<shardkit::tp::LossOfToken<float>>;
/// A function, and no variable's value: nvcc makes no device code for a kernel that only a variable's initializer
/// names (13.0; the launch then ends with cudaErrorInvalidDeviceFunction).
template <class... Work>
struct Launches {
    using Calls = std::tuple<void (detail::DeviceLaunch::*)(std::uint64_t, const Work&, std::string_view) const...>;
    static Calls calls() { return Calls(&detail::DeviceLaunch::operator()<Work>...); }
};

}  // namespace shardkit::gpu
