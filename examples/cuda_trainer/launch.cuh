// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job.hpp"

namespace cuda_trainer {

template <class Work>
__global__ void for_each(std::size_t count, Work work) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) { work(i); }
}

template <class Work>
void launch(cudaStream_t stream, std::size_t count, const Work& work) {
    if (count == 0) { return; }
    constexpr unsigned threads = 256;
    for_each<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, stream>>>(count, work);
    check(cudaGetLastError(), "a kernel's launch");
}

}  // namespace cuda_trainer
