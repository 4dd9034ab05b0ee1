// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "state.hpp"

namespace standin {

CUstream_st* find_stream(const State& s, cudaStream_t stream, cudaError_t& error) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        error = cudaErrorInvalidValue;
        return nullptr;
    }
    CUstream_st* const found = s.streams.find(stream);
    if (found == nullptr || found->destroyed) {
        error = cudaErrorInvalidResourceHandle;
        return nullptr;
    }
    return found;
}

namespace {

/// The frame of a call about one stream.
template <class Body>
cudaError_t stream_call(std::string_view name, Needs needs, cudaStream_t stream, const Body& body) {
    return cuda_call(name, needs, [&](State& s, Lock& lock, ThreadState& thread) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const found = find_stream(s, stream, error);
        return found == nullptr ? error : body(s, lock, thread, *found);
    });
}

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

cudaError_t create(State& s, const ThreadState& thread, cudaStream_t* stream, unsigned int flags, int priority) {
    if (stream == nullptr || (flags & ~1U) != 0) { return cudaErrorInvalidValue; }
    *stream = s.streams.add(std::make_unique<CUstream_st>());
    (*stream)->device = thread.device;
    (*stream)->flags = flags;
    (*stream)->priority = std::clamp(priority, greatest_priority, least_priority);
    (*stream)->pace = s.pace;
    return cudaSuccess;
}

/// Waiting for a capture would wait for work that never runs: the capture is spoilt. So is any that forbids calls
/// like this one.
bool refused(State& s, CUstream_st& stream) {
    if (stream.capture) { stream.capture->invalid = true; }
    return refuse_in_capture(s) != cudaSuccess || stream.capture != nullptr;
}

}  // namespace
}  // namespace standin

using standin::Lock;
using standin::Needs;
using standin::State;
using standin::stream_call;
using standin::ThreadState;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return standin::cuda_call("cudaDeviceGetStreamPriorityRange", Needs::device, [&](State&, Lock&, ThreadState&) {
        if (least != nullptr) { *least = standin::least_priority; }
        if (greatest != nullptr) { *greatest = standin::greatest_priority; }
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    return standin::cuda_call(
        "cudaStreamCreateWithPriority", Needs::device,
        [&](State& s, Lock&, ThreadState& thread) { return standin::create(s, thread, stream, flags, priority); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    return standin::cuda_call("cudaStreamCreateWithFlags", Needs::device, [&](State& s, Lock&, ThreadState& thread) {
        return standin::create(s, thread, stream, flags, standin::least_priority);
    });
}

// Returns at once; what is queued still runs, as late as the rules allow.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return stream_call("cudaStreamDestroy", Needs::release, stream,
                       [](State& s, Lock&, ThreadState&, CUstream_st& found) {
                           if (found.capture) {
                               found.capture->invalid = true;
                               const auto capture = found.capture;
                               found.capture.reset();
                               if (capture->origin == &found) { standin::end_capture(s, capture); }
                           }
                           found.destroyed = true;
                           s.dirty = true;
                           return cudaSuccess;
                       });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return stream_call(
        "cudaStreamSynchronize", Needs::device, stream, [](State& s, Lock& lock, ThreadState&, CUstream_st& found) {
            if (standin::refused(s, found)) { return cudaErrorStreamCaptureUnsupported; }
            const int device = found.device;
            // Another thread may destroy the stream while this one waits: the mark stays.
            const auto last = found.queue.empty() ? nullptr : found.queue.back()->mark;
            const bool done = standin::block_until(
                s, lock, [&] { return last == nullptr || s.is_broken(device) || standin::advance(s, *last); });
            if (s.is_broken(device)) { return s.broken.at(device); }
            return done ? cudaSuccess : cudaErrorLaunchTimeout;
        });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return stream_call("cudaStreamQuery", Needs::device, stream,
                       [](State& s, Lock&, ThreadState&, CUstream_st& found) {
                           if (standin::refused(s, found)) { return cudaErrorStreamCaptureUnsupported; }
                           if (s.is_broken(found.device)) { return s.broken.at(found.device); }
                           if (found.done < found.queued && found.polls_left > 0) {
                               --found.polls_left;
                               return cudaErrorNotReady;
                           }
                           return standin::advance(s, found, found.queued) ? cudaSuccess : cudaErrorNotReady;
                       });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
    return stream_call("cudaStreamGetDevice", Needs::device, stream,
                       [&](State&, Lock&, ThreadState&, CUstream_st& found) {
                           *device = found.device;
                           return cudaSuccess;
                       });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    return stream_call("cudaStreamGetPriority", Needs::device, stream,
                       [&](State&, Lock&, ThreadState&, CUstream_st& found) {
                           *priority = found.priority;
                           return cudaSuccess;
                       });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
    return stream_call("cudaStreamGetFlags", Needs::device, stream,
                       [&](State&, Lock&, ThreadState&, CUstream_st& found) {
                           *flags = found.flags;
                           return cudaSuccess;
                       });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    return stream_call("cudaLaunchHostFunc", Needs::device, stream,
                       [&](State& s, Lock& lock, ThreadState& thread, CUstream_st& found) {
                           if (function == nullptr) { return cudaErrorInvalidValue; }
                           // As a kernel: the stream must be one of the current device.
                           if (found.device != thread.device) { return cudaErrorInvalidResourceHandle; }
                           return standin::submit(s, lock, found, [=](State& state, CUstream_st& in) {
                               standin::push(state, in, std::make_unique<standin::Work>([=] { function(data); }));
                           });
                       });
}
