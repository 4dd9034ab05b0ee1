// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <queue>
#include <utility>

#include "state.hpp"

namespace standin {

cudaError_t submit(State& s, Lock& lock, CUstream_st& stream, const Submission& submission) {
    if (stream.capture) { return capture(stream, submission); }
    const cudaError_t full = make_room(s, lock, stream);
    if (full == cudaSuccess) { submission(s, stream); }
    return full;
}

cudaError_t capture(CUstream_st& stream, const Submission& submission, const std::vector<const void*>& serial) {
    Capture& capture = *stream.capture;
    if (capture.invalid) { return cudaErrorStreamCaptureInvalidated; }
    Node node{submission, stream.tail, serial};
    const std::size_t index = capture.nodes.size();
    for (const void* const each : serial) {
        const auto [last, is_first] = capture.last.try_emplace(each, index);
        if (!is_first) { node.after.push_back(std::exchange(last->second, index)); }
    }
    capture.nodes.push_back(std::move(node));
    stream.tail = {index};
    return cudaSuccess;
}

cudaError_t refuse_in_capture(State& s) {
    cudaError_t result = cudaSuccess;
    for (const auto& capture : s.captures) {
        if (!capture->forbids_unsafe_calls(this_thread(s).capture_mode)) { continue; }
        capture->invalid = true;
        result = cudaErrorStreamCaptureUnsupported;
    }
    return result;
}

bool is_in_a_graph(const State& s, const void* serial) {
    const auto holds = [&](const auto& graph) {
        return std::any_of(graph->nodes->begin(), graph->nodes->end(), [&](const Node& node) {
            return std::find(node.serial.begin(), node.serial.end(), serial) != node.serial.end();
        });
    };
    return std::any_of(s.graphs.all().begin(), s.graphs.all().end(), holds) ||
           std::any_of(s.executables.all().begin(), s.executables.all().end(), holds);
}

void end_capture(State& s, const std::shared_ptr<Capture>& capture) {
    capture->ended = true;
    for (const auto& stream : s.streams.all()) {
        if (stream->capture == capture) {
            stream->capture.reset();
            stream->tail.clear();
        }
    }
    s.captures.erase(std::find(s.captures.begin(), s.captures.end(), capture));
}

namespace {

/// Whether all that the other streams of the capture did is waited for by the origin.
bool is_joined(const State& s, const CUstream_st& origin) {
    const Capture& capture = *origin.capture;
    std::vector<bool> reached(capture.nodes.size(), false);
    std::vector<std::size_t> open = origin.tail;
    while (!open.empty()) {
        const std::size_t node = open.back();
        open.pop_back();
        if (reached[node]) { continue; }
        reached[node] = true;
        open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
    }
    return std::all_of(s.streams.all().begin(), s.streams.all().end(), [&](const auto& stream) {
        return stream->capture.get() != &capture ||
               std::all_of(stream->tail.begin(), stream->tail.end(), [&](std::size_t node) { return reached[node]; });
    });
}

/// An order that the graph allows, with the nodes captured last as early as possible.
std::vector<std::size_t> least_favourable_order(const std::vector<Node>& nodes) {
    std::vector<std::size_t> waits_for(nodes.size());
    std::vector<std::vector<std::size_t>> before(nodes.size());
    std::priority_queue<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        waits_for[i] = nodes[i].after.size();
        for (const std::size_t each : nodes[i].after) { before[each].push_back(i); }
        if (waits_for[i] == 0) { ready.push(i); }
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
        const std::size_t node = ready.top();
        ready.pop();
        order.push_back(node);
        for (const std::size_t next : before[node]) {
            if (--waits_for[next] == 0) { ready.push(next); }
        }
    }
    return order;
}

}  // namespace
}  // namespace standin

using standin::Capture;
using standin::cuda_call;
using standin::Lock;
using standin::Needs;
using standin::State;
using standin::ThreadState;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return cuda_call("cudaStreamBeginCapture", Needs::device, [&](State& s, Lock&, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const found = standin::find_stream(s, stream, error);
        if (found == nullptr) { return error; }
        if (found->capture) { return cudaErrorIllegalState; }
        found->capture = std::make_shared<Capture>();
        found->capture->id = ++s.captures_begun;
        found->capture->mode = mode;
        found->capture->origin = found;
        found->tail.clear();
        s.captures.push_back(found->capture);
        return cudaSuccess;
    });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return cuda_call("cudaThreadExchangeStreamCaptureMode", Needs::context, [&](State&, Lock&, ThreadState& thread) {
        if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) {
            return cudaErrorInvalidValue;
        }
        std::swap(*mode, thread.capture_mode);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return cuda_call("cudaStreamEndCapture", Needs::device, [&](State& s, Lock&, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const found = standin::find_stream(s, stream, error);
        if (found == nullptr) { return error; }
        if (graph == nullptr) { return cudaErrorInvalidValue; }
        *graph = nullptr;
        const auto capture = found->capture;
        if (!capture) { return cudaErrorIllegalState; }
        if (capture->origin != found) {
            capture->invalid = true;
            return cudaErrorStreamCaptureUnmatched;
        }
        if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
            return cudaErrorStreamCaptureWrongThread;
        }
        const bool joined = standin::is_joined(s, *found);
        standin::end_capture(s, capture);
        if (capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
        if (!joined) { return cudaErrorStreamCaptureUnjoined; }
        *graph = s.graphs.add(std::make_unique<CUgraph_st>());
        (*graph)->nodes = std::make_shared<const std::vector<standin::Node>>(std::move(capture->nodes));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* size) {
    return cuda_call("cudaStreamGetCaptureInfo", Needs::device, [&](State& s, Lock&, ThreadState&) {
        cudaError_t error = cudaSuccess;
        const CUstream_st* const found = standin::find_stream(s, stream, error);
        if (found == nullptr) { return error; }
        if (status == nullptr) { return cudaErrorInvalidValue; }
        if (graph != nullptr || dependencies != nullptr || edges != nullptr || size != nullptr) {
            return cudaErrorNotSupported;
        }
        const auto& capture = found->capture;
        *status = !capture           ? cudaStreamCaptureStatusNone
                  : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
        if (capture && id != nullptr) { *id = capture->id; }
        return cudaSuccess;
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return cuda_call("cudaStreamIsCapturing", Needs::device, [&](State& s, Lock&, ThreadState&) {
        cudaError_t error = cudaSuccess;
        const CUstream_st* const found = standin::find_stream(s, stream, error);
        if (found == nullptr) { return error; }
        if (status == nullptr) { return cudaErrorInvalidValue; }
        *status = !found->capture           ? cudaStreamCaptureStatusNone
                  : found->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    return cuda_call("cudaGraphInstantiate", Needs::device, [&](State& s, Lock&, ThreadState& thread) {
        const CUgraph_st* const found = s.graphs.find(graph);
        if (executable == nullptr || found == nullptr) { return cudaErrorInvalidValue; }
        *executable = s.executables.add(std::make_unique<CUgraphExec_st>());
        (*executable)->device = thread.device;
        (*executable)->nodes = found->nodes;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return cuda_call("cudaGraphLaunch", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const in = standin::find_stream(s, stream, error);
        const CUgraphExec_st* const found = s.executables.find(executable);
        if (in == nullptr) { return error; }
        if (found == nullptr) { return cudaErrorInvalidResourceHandle; }
        if (in->capture) { return cudaErrorNotSupported; }
        if (const cudaError_t full = standin::make_room(s, lock, *in); full != cudaSuccess) { return full; }
        for (const std::size_t node : standin::least_favourable_order(*found->nodes)) {
            (*found->nodes)[node].submit(s, *in);
        }
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    return cuda_call("cudaGraphExecDestroy", Needs::release, [&](State& s, Lock&, ThreadState&) {
        if (s.executables.find(executable) == nullptr) { return cudaErrorInvalidResourceHandle; }
        s.executables.remove(executable);
        s.dirty = true;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    return cuda_call("cudaGraphGetNodes", Needs::device, [&](State& s, Lock&, ThreadState&) {
        const CUgraph_st* const found = s.graphs.find(graph);
        if (found == nullptr) { return cudaErrorInvalidResourceHandle; }
        if (count == nullptr) { return cudaErrorInvalidValue; }
        if (nodes != nullptr) { return cudaErrorNotSupported; }
        *count = found->nodes->size();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return cuda_call("cudaGraphDestroy", Needs::release, [&](State& s, Lock&, ThreadState&) {
        if (s.graphs.find(graph) == nullptr) { return cudaErrorInvalidResourceHandle; }
        s.graphs.remove(graph);
        s.dirty = true;
        return cudaSuccess;
    });
}
