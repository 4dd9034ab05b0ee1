// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "operation.hpp"

namespace standin {

/// Queues one piece of work in a stream: at once, or at every launch of the graph that it was captured into.
using Submission = std::function<void(State&, CUstream_st&)>;

struct Node {
    Submission submit;
    std::vector<std::size_t> after;
    std::vector<const void*> serial;  // the communicators that it is for
};

/// A capture that is under way, shared by the streams in it.
struct Capture {
    unsigned long long id = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    CUstream_st* origin = nullptr;
    std::thread::id thread = std::this_thread::get_id();
    bool invalid = false;
    bool ended = false;
    std::vector<Node> nodes;
    std::map<const void*, std::size_t> last;  // the last node of each communicator: NCCL keeps their order

    /// Whether it forbids unsafe calls of this thread, whose own mode is `of_thread`.
    bool forbids_unsafe_calls(cudaStreamCaptureMode of_thread) const {
        if (of_thread == cudaStreamCaptureModeRelaxed || mode == cudaStreamCaptureModeRelaxed) { return false; }
        return thread == std::this_thread::get_id() ||
               (mode == cudaStreamCaptureModeGlobal && of_thread == cudaStreamCaptureModeGlobal);
    }
};

/// What an event's last record was: a place in a queue, or nodes of a capture.
struct Record {
    std::shared_ptr<Mark> mark;
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> after;
};

}  // namespace standin

struct CUevent_st {
    int device = 0;
    bool timed = false;
    int polls_left = 0;
    standin::Record record;
};

struct CUgraph_st {
    std::shared_ptr<const std::vector<standin::Node>> nodes;
};

struct CUgraphExec_st {
    int device = 0;
    std::shared_ptr<const std::vector<standin::Node>> nodes;
};
