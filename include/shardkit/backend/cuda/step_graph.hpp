// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// A rank's step as a CUDA graph: captured once, and launched for every further step. It reads its inputs where they
/// lay in the step that was captured, and leaves its results there. Move-only; it must end before the World finishes,
/// and before a borrowed communicator is destroyed or aborted.
///     trainer.step();  // takes the memory that every step needs, which a capture refuses
///     const gpu::StepGraph graph(rank.streams(), [&] { trainer.step(); });
///     for (...) { load_inputs();  graph.launch(); }
class StepGraph {
  public:
    /// Captures what `step()` gives to the rank's streams; nothing of it is done. What is given to the streams later
    /// is ordered behind what was before, whether or not the step throws.
    /// @throws what the step throws; Error; UsageError for streams of the host
    template <class Step>
    StepGraph(const Streams& streams, const Step& step, SourceLocation where = SourceLocation::current())
        : streams_(streams), compute_(streams.compute.native(where)) {
        detail::check(cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
                      where);
        cudaGraph_t captured = nullptr;
        try {
            streams_.fork();
            step();
            streams_.join();
        } catch (...) {
            if (cudaStreamEndCapture(compute_, &captured) == cudaSuccess) { Destroy{}(captured); }
            static_cast<void>(cudaGetLastError());
            order();
            throw;
        }
        const cudaError_t ended = cudaStreamEndCapture(compute_, &captured);
        order();
        detail::check(ended, "cudaStreamEndCapture", where);
        const Owned<cudaGraph_t> graph(captured);
        cudaGraphExec_t executable = nullptr;
        detail::check(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate", where);
        executable_.reset(executable);
    }

    /// Gives the step to the streams, behind all their work so far; the host does not wait.
    /// @throws Error
    void launch(SourceLocation where = SourceLocation::current()) const {
        streams_.join();
        detail::check(cudaGraphLaunch(executable_.get(), compute_), "cudaGraphLaunch", where);
        streams_.fork();
    }

  private:
    struct Destroy {
        void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
        void operator()(cudaGraphExec_t graph) const noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }
    };
    template <class Handle>
    using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

    /// The containers hold events of the capture, for which nobody waits outside of it: what comes next is ordered
    /// here.
    void order() const {
        streams_.join();
        streams_.fork();
    }

    Streams streams_;
    cudaStream_t compute_;
    Owned<cudaGraphExec_t> executable_;
};

}  // namespace shardkit::gpu
