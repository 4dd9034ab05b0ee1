// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/rank/streams.hpp>

namespace step_trainer {

/// A rank's step as a CUDA graph, captured and launched in the order that TimelineRef asks for.
class CapturedStep {
  public:
    template <class Step>
    CapturedStep(const shardkit::Streams<shardkit::gpu::TimelineRef>& streams, const Step& step) : streams_(streams) {
        using shardkit::gpu::detail::check;
        const auto compute = streams_.compute;
        cudaGraph_t graph = nullptr;
        check(cudaStreamBeginCapture(compute.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        try {
            streams_.fork();
            step();
            streams_.join();
        } catch (...) {
            if (cudaStreamEndCapture(compute.native(), &graph) == cudaSuccess) {
                static_cast<void>(cudaGraphDestroy(graph));
            }
            static_cast<void>(cudaGetLastError());
            order_all();
            throw;
        }
        check(cudaStreamEndCapture(compute.native(), &graph), "cudaStreamEndCapture");
        const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
        static_cast<void>(cudaGraphDestroy(graph));
        check(made, "cudaGraphInstantiate");
        // The containers now hold events of the capture, for which nobody waits outside of it: whatever comes next
        // is ordered here after what was given to the streams before.
        order_all();
    }
    CapturedStep(CapturedStep&& other) noexcept
        : streams_(other.streams_), executable_(std::exchange(other.executable_, nullptr)) {}
    CapturedStep& operator=(CapturedStep&&) = delete;
    ~CapturedStep() {
        if (executable_ != nullptr) { static_cast<void>(cudaGraphExecDestroy(executable_)); }
    }

    void launch() const {
        streams_.join();
        shardkit::gpu::detail::check(cudaGraphLaunch(executable_, streams_.compute.native()), "cudaGraphLaunch");
        streams_.fork();
    }

  private:
    void order_all() const {
        streams_.join();
        streams_.fork();
    }

    shardkit::Streams<shardkit::gpu::TimelineRef> streams_;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace step_trainer
