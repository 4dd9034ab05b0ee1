// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "../../examples/cuda_trainer/network.hpp"

/// The trainers' launches as loops on the host, in the stream's order too: the arithmetic is tested without a GPU.
namespace cuda_trainer {

/// A copy of what a launch does that stays: a graph may do it again.
template <class Loop>
Loop* keep(const Loop& loop) {
    static std::mutex mutex;
    static std::list<Loop> kept;
    const std::lock_guard lock(mutex);
    return &kept.emplace_back(loop);
}

template <class Work>
void launch(cudaStream_t stream, std::size_t count, const Work& work) {
    if (count == 0) { return; }
    struct Loop {
        std::size_t count;
        Work work;
    };
    const auto run = [](void* given) {
        const Loop& loop = *static_cast<const Loop*>(given);
        for (std::size_t i = 0; i < loop.count; ++i) { loop.work(i); }
    };
    check(cudaLaunchHostFunc(stream, run, keep(Loop{count, work})), "cudaLaunchHostFunc");
}

}  // namespace cuda_trainer
