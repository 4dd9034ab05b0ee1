// SPDX-License-Identifier: Apache-2.0
#include "trainer_kernels.hpp"

#include <shardkit/backend/cub/launches.cuh>

namespace trainer_kernels {

template <class List>
struct Launched {
    static void calls() { static_cast<void>(List::template In<shardkit::gpu::KernelLaunches>::calls()); }
};
template struct Launched<All>;

}  // namespace trainer_kernels
