// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>

#include "engine_workload.hpp"

namespace benchmarks::kernels {

/// Another workload whose call is captured in a CUDA graph and launched.
class GraphWorkload final : public Workload {
  public:
    GraphWorkload(const shardkit::Streams& streams, KernelWorkload& workload)
        : streams_(streams), workload_(workload) {}
    ~GraphWorkload() override { drop(); }

    void prepare() override {
        drop();
        workload_.prepare();
    }
    void call(std::size_t times) override {
        using shardkit::gpu::detail::check;
        if (executable_ == nullptr) { capture(); }
        for (std::size_t i = 0; i < times; ++i) {
            check(cudaGraphLaunch(executable_, streams_.compute.native()), "cudaGraphLaunch");
        }
        streams_.fork();
        streams_.compute.synchronize();
    }
    std::uint64_t count_wrong() override { return workload_.count_wrong(); }

    /// Nodes of the graph; what the call gives to the GPU.
    /// @pre call() was called since prepare()
    std::size_t nodes() const noexcept { return nodes_; }

  private:
    void capture() {
        using shardkit::gpu::detail::check;
        const auto compute = streams_.compute;
        cudaGraph_t graph = nullptr;
        streams_.communication.synchronize();
        streams_.reduction.synchronize();
        check(cudaStreamBeginCapture(compute.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        streams_.fork();
        workload_.once();
        streams_.join();
        check(cudaStreamEndCapture(compute.native(), &graph), "cudaStreamEndCapture");
        // Later work of any stream comes after earlier work of all.
        streams_.join();
        streams_.fork();
        const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes_);
        const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
        check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        check(counted, "cudaGraphGetNodes");
        check(made, "cudaGraphInstantiate");
    }
    void drop() noexcept {
        if (executable_ != nullptr) { static_cast<void>(cudaGraphExecDestroy(executable_)); }
        executable_ = nullptr;
    }

    shardkit::Streams streams_;
    KernelWorkload& workload_;
    cudaGraphExec_t executable_ = nullptr;
    std::size_t nodes_ = 0;
};

}  // namespace benchmarks::kernels
