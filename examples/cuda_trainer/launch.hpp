// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "check.hpp"

namespace cuda_trainer {

#ifdef __CUDACC__
template <class Work>
__global__ void for_each(std::size_t count, Work work) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) { work(i); }
}
#endif

/// work(i) for each i below `count`, in the stream's order: a thread each on a GPU. Compiled by another compiler than
/// nvcc it is a loop on the host, in the stream's order too, so that the arithmetic is tested without a GPU.
template <class Work>
void launch(cudaStream_t stream, std::size_t count, const Work& work) {
    if (count == 0) { return; }
#ifdef __CUDACC__
    constexpr unsigned threads = 256;
    for_each<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, stream>>>(count, work);
    check(cudaGetLastError(), "a kernel's launch");
#else
    struct Loop {
        std::size_t count;
        Work work;
    };
    auto loop = std::make_unique<Loop>(Loop{count, work});
    const auto run = [](void* given) {
        const std::unique_ptr<Loop> mine(static_cast<Loop*>(given));
        for (std::size_t i = 0; i < mine->count; ++i) { mine->work(i); }
    };
    check(cudaLaunchHostFunc(stream, run, loop.get()), "cudaLaunchHostFunc");
    static_cast<void>(loop.release());
#endif
}

}  // namespace cuda_trainer
