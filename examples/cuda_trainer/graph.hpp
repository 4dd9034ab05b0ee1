// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/cuda/timeline.hpp>
#endif
#include <shardkit/rank/streams.hpp>

#include "check.hpp"

namespace cuda_trainer::after {

struct DestroyGraph {
    void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;
using ExecutableGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

/// While it lives, the work that all streams are given goes into a graph and is not done. `compute` is CUDA's own
/// compute stream.
template <class Stream>
class Capture {
  public:
    Capture(const shardkit::Streams<Stream>& streams, cudaStream_t compute) : streams_(streams), compute_(compute) {
        check(cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        streams_.fork();
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    /// Nobody waits for the events of a capture afterwards: what comes next is ordered behind what was before it.
    ~Capture() {
        cudaGraph_t graph = nullptr;
        if (!ended_ && cudaStreamEndCapture(compute_, &graph) == cudaSuccess) { DestroyGraph{}(graph); }
        streams_.join();
        streams_.fork();
    }

    Graph end() {
        streams_.join();
        ended_ = true;
        cudaGraph_t graph = nullptr;
        check(cudaStreamEndCapture(compute_, &graph), "cudaStreamEndCapture");
        return Graph(graph);
    }

  private:
    shardkit::Streams<Stream> streams_;
    cudaStream_t compute_;
    bool ended_ = false;
};

/// A step of training, captured once and launched for every further step. It reads its inputs where they lay in the
/// step that was captured, and leaves its results there.
template <class Stream>
class GraphOf {
  public:
    /// @pre  a plain step came before: it took the memory that every step needs, which a capture must not
    template <class Step>
    GraphOf(const shardkit::Streams<Stream>& streams, cudaStream_t compute, const Step& step)
        : streams_(streams), compute_(compute) {
        Capture capture(streams, compute);
        step();
        const Graph graph = capture.end();
        cudaGraphExec_t executable = nullptr;
        check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
        executable_.reset(executable);
    }
    /// The same where the streams say which ones of CUDA's they are.
    template <class Step>
    GraphOf(const shardkit::Streams<Stream>& streams, const Step& step)
        : GraphOf(streams, streams.compute.native(), step) {}

    void launch() const {
        streams_.join();
        check(cudaGraphLaunch(executable_.get(), compute_), "cudaGraphLaunch");
        streams_.fork();
    }

  private:
    shardkit::Streams<Stream> streams_;
    cudaStream_t compute_;
    ExecutableGraph executable_;
};
#ifndef SHARDKIT_COMPILED
using StepGraph = GraphOf<shardkit::gpu::TimelineRef>;
#endif

}  // namespace cuda_trainer::after
