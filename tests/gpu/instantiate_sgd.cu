// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>

#include "instantiate_each_precision.hpp"

// The Sgd kernel for each of the 64 combinations of element types.

using shardkit::gpu::DeviceLaunch;
using shardkit::gpu::SgdPass;

#define SGD(Master, Gather, Gradient)                                                               \
    template void DeviceLaunch::operator()(std::uint64_t, const SgdPass<Master, Gather, Gradient>&, \
                                           std::string_view) const;

EACH_PRECISION(SGD)
