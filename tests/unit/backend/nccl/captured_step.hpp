// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/rank/context.hpp>

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
            spread();
            step();
            gather();
        } catch (...) {
            if (cudaStreamEndCapture(compute.native(), &graph) == cudaSuccess) {
                static_cast<void>(cudaGraphDestroy(graph));
            }
            static_cast<void>(cudaGetLastError());
            join();
            throw;
        }
        check(cudaStreamEndCapture(compute.native(), &graph), "cudaStreamEndCapture");
        const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
        static_cast<void>(cudaGraphDestroy(graph));
        check(made, "cudaGraphInstantiate");
        // The containers now hold events of the capture, for which nobody waits outside of it: whatever comes next
        // is ordered here after what was given to the streams before.
        join();
    }
    CapturedStep(CapturedStep&& other) noexcept
        : streams_(other.streams_), executable_(std::exchange(other.executable_, nullptr)) {}
    CapturedStep& operator=(CapturedStep&&) = delete;
    ~CapturedStep() {
        if (executable_ != nullptr) { static_cast<void>(cudaGraphExecDestroy(executable_)); }
    }

    void launch() const {
        gather();
        shardkit::gpu::detail::check(cudaGraphLaunch(executable_, streams_.compute.native()), "cudaGraphLaunch");
        spread();
    }

  private:
    void join() const noexcept {
        gather();
        spread();
    }
    void gather() const noexcept {
        streams_.compute.wait(streams_.communication.record());
        streams_.compute.wait(streams_.reduction.record());
    }
    void spread() const noexcept {
        streams_.communication.wait(streams_.compute.record());
        streams_.reduction.wait(streams_.compute.record());
    }

    shardkit::Streams<shardkit::gpu::TimelineRef> streams_;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace step_trainer
