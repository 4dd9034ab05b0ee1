// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/cub/launches.cuh>

#include "kernels.hpp"

namespace train_gpt {

/// Makes, for nvcc, the launches of a Pass<T> on a device, when it is explicitly instantiated.
template <class T>
struct PassKernels {
    using Of = PassLists<T, shardkit::gpu::KernelLaunches, shardkit::gpu::Launches>;
    static void calls() {
        shardkit::gpu::LaunchLists<typename Of::OfLibrary, typename Of::Elements, typename Of::Rows,
                                   typename Of::OfColumns, typename Of::OfExperts>::calls();
    }
};

}  // namespace train_gpt
