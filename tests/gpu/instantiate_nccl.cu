// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>

// What the NCCL engine gives to Kernels::for_each_index.

using shardkit::bf16;
using shardkit::fp16;

#define COMBINED(In, Out) template struct shardkit::nccl::detail::CombinedFor<In, Out>;
#define OUTPUTS(In)      \
    COMBINED(In, double) \
    COMBINED(In, float)  \
    COMBINED(In, bf16)   \
    COMBINED(In, fp16)

OUTPUTS(double)
OUTPUTS(float)
OUTPUTS(bf16)
OUTPUTS(fp16)
