// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Makes the launch of each kernel for files that nvcc does not compile, when it is explicitly instantiated in a file
/// of nvcc that the program links as an object file:
///     template struct shardkit::gpu::KernelLaunches<shardkit::engine::Fill<float>>;
/// The list is a function, not a variable: nvcc 13.0 makes no device code for a kernel that only a variable's
/// initializer names (the launch then fails with cudaErrorInvalidDeviceFunction).
template <class... Kernel>
struct KernelLaunches {
    using Calls = std::array<void (*)(), sizeof...(Kernel)>;
    static Calls calls() {
        return {(static_cast<void>(&engine::DeviceLaunchIs<Kernel>::known),
                 reinterpret_cast<void (*)()>(&engine::DeviceLaunchOf<Kernel>::run))...};
    }
    /// Loads the kernels on the selected device, which CUDA otherwise does at the first launch of each. To be called
    /// in the file of nvcc, before the first step. A template, since not all who list kernels load them.
    /// @throws gpu::Error
    template <class Where = SourceLocation>
    static void preload([[maybe_unused]] Where where = Where::current()) {
        (engine::DeviceLaunchOf<Kernel>::load(where), ...);
    }
};
/// Makes several lists of launches.
template <class... Lists>
struct LaunchLists {
    static void calls() { (static_cast<void>(Lists::calls()), ...); }
    template <class Where = SourceLocation>
    static void preload([[maybe_unused]] Where where = Where::current()) {
        (Lists::preload(where), ...);
    }
};

}  // namespace shardkit::gpu
