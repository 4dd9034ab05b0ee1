// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

namespace benchmarks::kernels {

/// How many operations enqueue() gives to the stream: the nodes of the CUDA graph that it is captured into, in which
/// nothing of it runs.
/// @pre enqueue() neither waits nor throws
template <class Enqueue>
std::size_t count_launches(const shardkit::gpu::TimelineRef& stream, const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    std::size_t nodes = 0;
    shardkit::gpu::check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture");
    enqueue();
    shardkit::gpu::check(cudaStreamEndCapture(stream.native(), &graph), "cudaStreamEndCapture");
    const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
    shardkit::gpu::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    shardkit::gpu::check(counted, "cudaGraphGetNodes");
    return nodes;
}

}  // namespace benchmarks::kernels
