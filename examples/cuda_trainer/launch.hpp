// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "check.hpp"

namespace cuda_trainer {

#ifdef __CUDACC__
template <class Work>
__global__ void for_each(std::size_t count, Work work) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) { work(i); }
}
#else
/// A copy of what a launch does that stays: a graph may do it again.
template <class Loop>
Loop* keep(const Loop& loop) {
    static std::mutex mutex;
    static std::list<Loop> kept;
    const std::lock_guard lock(mutex);
    return &kept.emplace_back(loop);
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
    const auto run = [](void* given) {
        const Loop& loop = *static_cast<const Loop*>(given);
        for (std::size_t i = 0; i < loop.count; ++i) { loop.work(i); }
    };
    check(cudaLaunchHostFunc(stream, run, keep(Loop{count, work})), "cudaLaunchHostFunc");
#endif
}

}  // namespace cuda_trainer
