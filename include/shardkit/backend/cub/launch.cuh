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

/// Makes the device code of each Work, and the launch that other files link with, when it is explicitly instantiated
/// in a file of nvcc:
///     template struct shardkit::gpu::Launches<shardkit::tp::LossOfToken<float>>;
/// The list is a function, not a variable: nvcc 13.0 makes no device code for a kernel that only a variable's
/// initializer names (the launch then fails with cudaErrorInvalidDeviceFunction).
template <class... Work>
struct Launches {
    using Calls = std::tuple<void (detail::DeviceLaunch::*)(std::uint64_t, const Work&, std::string_view) const...>;
    static Calls calls() { return Calls(&detail::DeviceLaunch::operator()<Work>...); }
};

}  // namespace shardkit::gpu
