// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/backend/nccl/combined.hpp>

// What the NCCL engine gives to Kernels::for_each_index.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::nccl::detail::Combined;

#define EXTREME(In, Out) \
    template void DeviceLaunch::operator()(std::uint64_t, const Combined<In, Out>&, std::string_view) const;
#define OUTPUTS(In)     \
    EXTREME(In, double) \
    EXTREME(In, float)  \
    EXTREME(In, bf16)   \
    EXTREME(In, fp16)

OUTPUTS(double)
OUTPUTS(float)
OUTPUTS(bf16)
OUTPUTS(fp16)
