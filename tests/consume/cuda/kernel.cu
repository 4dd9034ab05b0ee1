// SPDX-License-Identifier: Apache-2.0
// Calls a constexpr function of the library in a kernel, which nvcc takes with a flag only.
#include <shardkit/optim/adamw.hpp>

static_assert(__cplusplus >= 202002L);

__global__ void update(shardkit::rules::AdamWUpdate<float> step, float* parameter, float* first, float* second,
                       const float* gradient) {
    step(parameter[threadIdx.x], first[threadIdx.x], second[threadIdx.x], gradient[threadIdx.x]);
}
