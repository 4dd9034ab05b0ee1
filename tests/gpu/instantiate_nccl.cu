// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/backend/nccl/combined.hpp>

// What the NCCL engine gives to Kernels::for_each_index.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::nccl::detail::AddedAlongTree;
using shardkit::nccl::detail::AddedByEights;
using shardkit::nccl::detail::AddedInOrder;
using shardkit::nccl::detail::Extremes;

#define BY_INDEX(Work, In, Out) \
    template void DeviceLaunch::operator()(std::uint64_t, const Work<In, Out>&, std::string_view) const;
#define COMBINED(In, Out)             \
    BY_INDEX(Extremes, In, Out)       \
    BY_INDEX(AddedInOrder, In, Out)   \
    BY_INDEX(AddedAlongTree, In, Out) \
    BY_INDEX(AddedByEights, In, Out)
#define OUTPUTS(In)      \
    COMBINED(In, double) \
    COMBINED(In, float)  \
    COMBINED(In, bf16)   \
    COMBINED(In, fp16)

OUTPUTS(double)
OUTPUTS(float)
OUTPUTS(bf16)
OUTPUTS(fp16)
