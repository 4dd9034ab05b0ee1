// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/device_launch.cuh>
#include <shardkit/backend/cub/kernels.hpp>

// The AdamW kernel for each of the 64 combinations of element types.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::cub::AdamWPass;
using shardkit::cub::DeviceLaunch;

#define ADAMW(Master, Gather, Gradient)                                                               \
    template void DeviceLaunch::operator()(std::uint64_t, const AdamWPass<Master, Gather, Gradient>&, \
                                           std::string_view) const;
#define GRADIENTS(Master, Gather) \
    ADAMW(Master, Gather, double) \
    ADAMW(Master, Gather, float)  \
    ADAMW(Master, Gather, bf16)   \
    ADAMW(Master, Gather, fp16)
#define GATHERS(Master)       \
    GRADIENTS(Master, double) \
    GRADIENTS(Master, float)  \
    GRADIENTS(Master, bf16)   \
    GRADIENTS(Master, fp16)

GATHERS(double)
GATHERS(float)
GATHERS(bf16)
GATHERS(fp16)
