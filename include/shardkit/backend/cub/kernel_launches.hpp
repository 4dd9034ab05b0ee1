// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>

#include <shardkit/backend/host/device_kernels.hpp>

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
/// Makes several lists of launches.
template <class... Lists>
struct LaunchLists {
    using Calls = std::tuple<typename Lists::Calls...>;
    static Calls calls() { return Calls(Lists::calls()...); }
};

}  // namespace shardkit::gpu
