// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "state.hpp"

using standin::cuda_call;
using standin::Lock;
using standin::Needs;
using standin::Record;
using standin::State;
using standin::ThreadState;

namespace {

/// A wait in a capture, or for an event recorded in one.
cudaError_t wait_in_capture(CUstream_st& stream, const Record& record) {
    if (stream.capture && stream.capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
    if (!record.capture) {
        stream.capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (record.capture->ended) {
        if (stream.capture) { stream.capture->invalid = true; }
        return cudaErrorCapturedEvent;
    }
    if (record.capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
    if (!stream.capture) {
        stream.capture = record.capture;
        stream.tail.clear();
    }
    if (stream.capture != record.capture) {
        stream.capture->invalid = record.capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    for (const std::size_t node : record.after) {
        if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end()) {
            stream.tail.push_back(node);
        }
    }
    return cudaSuccess;
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return cuda_call("cudaEventCreateWithFlags", Needs::device, [&](State& s, Lock&, ThreadState& thread) {
        if (event == nullptr || (flags & ~7U) != 0) { return cudaErrorInvalidValue; }
        *event = s.events.add(std::make_unique<CUevent_st>());
        (*event)->device = thread.device;
        (*event)->timed = (flags & cudaEventDisableTiming) == 0;
        return cudaSuccess;
    });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return cuda_call("cudaEventDestroy", Needs::release, [&](State& s, Lock&, ThreadState&) {
        if (s.events.find(event) == nullptr) { return cudaErrorInvalidResourceHandle; }
        s.events.remove(event);
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cuda_call("cudaEventRecord", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const in = standin::find_stream(s, stream, error);
        CUevent_st* const found = s.events.find(event);
        if (in == nullptr) { return error; }
        if (found == nullptr || found->device != in->device) { return cudaErrorInvalidResourceHandle; }
        if (in->capture) {
            if (in->capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
            found->record = {nullptr, in->capture, in->tail};
            return cudaSuccess;
        }
        if (const cudaError_t full = standin::make_room(s, lock, *in); full != cudaSuccess) { return full; }
        found->polls_left = s.query_delay;
        found->record = {standin::push(s, *in, std::make_unique<standin::Work>(nullptr)), nullptr, {}};
        return cudaSuccess;
    });
}

// Waits for what the event's last record comes after, as of this call.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    return cuda_call("cudaStreamWaitEvent", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const in = standin::find_stream(s, stream, error);
        const CUevent_st* const found = s.events.find(event);
        if (in == nullptr) { return error; }
        if (found == nullptr) { return cudaErrorInvalidResourceHandle; }
        if (flags != cudaEventWaitDefault) { return cudaErrorInvalidValue; }
        if (!found->record.mark && !found->record.capture) { return cudaSuccess; }
        if (in->capture || found->record.capture) { return wait_in_capture(*in, found->record); }
        const auto mark = found->record.mark;
        if (const cudaError_t full = standin::make_room(s, lock, *in); full != cudaSuccess) { return full; }
        standin::push(s, *in, std::make_unique<standin::WaitForMark>(mark));
        return cudaSuccess;
    });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cuda_call("cudaEventQuery", Needs::device, [&](State& s, Lock&, ThreadState&) {
        CUevent_st* const found = s.events.find(event);
        if (found == nullptr) { return cudaErrorInvalidResourceHandle; }
        if (const cudaError_t error = standin::refuse_in_capture(s); error != cudaSuccess) { return error; }
        if (found->record.capture) { return cudaErrorCapturedEvent; }
        if (s.is_broken(found->device)) { return s.broken.at(found->device); }
        const auto mark = found->record.mark;
        if (!mark || mark->done) { return cudaSuccess; }
        if (found->polls_left > 0) {
            --found->polls_left;
            return cudaErrorNotReady;
        }
        return standin::advance(s, *mark) ? cudaSuccess : cudaErrorNotReady;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return cuda_call("cudaEventSynchronize", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        const CUevent_st* const found = s.events.find(event);
        if (found == nullptr) { return cudaErrorInvalidResourceHandle; }
        if (const cudaError_t error = standin::refuse_in_capture(s); error != cudaSuccess) { return error; }
        if (found->record.capture) { return cudaErrorCapturedEvent; }
        const int device = found->device;
        const auto mark = found->record.mark;
        const bool done = standin::block_until(
            s, lock, [&] { return mark == nullptr || s.is_broken(device) || standin::advance(s, *mark); });
        if (s.is_broken(device)) { return s.broken.at(device); }
        return done ? cudaSuccess : cudaErrorLaunchTimeout;
    });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    return cuda_call("cudaEventElapsedTime", Needs::device, [&](State& s, Lock&, ThreadState&) {
        const CUevent_st* const from = s.events.find(start);
        const CUevent_st* const to = s.events.find(end);
        if (ms == nullptr) { return cudaErrorInvalidValue; }
        if (from == nullptr || to == nullptr || !from->timed || !to->timed || from->device != to->device) {
            return cudaErrorInvalidResourceHandle;
        }
        if (const cudaError_t error = standin::refuse_in_capture(s); error != cudaSuccess) { return error; }
        if (from->record.capture || to->record.capture) { return cudaErrorCapturedEvent; }
        if (s.is_broken(from->device)) { return s.broken.at(from->device); }
        if (!from->record.mark || !to->record.mark) { return cudaErrorInvalidResourceHandle; }
        if (!from->record.mark->done || !to->record.mark->done) { return cudaErrorNotReady; }
        *ms = std::chrono::duration<float, std::milli>(to->record.mark->when - from->record.mark->when).count();
        return cudaSuccess;
    });
}
