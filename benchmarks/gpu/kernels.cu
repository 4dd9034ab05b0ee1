// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <shardkit/backend/cub/launches.cuh>

// All device code of the benchmarks: their other sources go through the host's compiler.

namespace benchmarks::gpu {

template <class List>
struct Launched {
    static void calls() { static_cast<void>(List::template In<shardkit::gpu::KernelLaunches>::calls()); }
};
template struct Launched<Kernels>;

}  // namespace benchmarks::gpu
