// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <thread>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/backend/cuda/current_device.hpp>
#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/device_guard.hpp>
#include <shardkit/backend/cuda/event_ring.hpp>
#include <shardkit/backend/cuda/stream_ref.hpp>
#include <shardkit/backend/cuda/timeline_options.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// What a Timeline owns and its references share; the rules stand at TimelineRef. One thread at a time.
class TimelineState {
  public:
    /// A point of one timeline. A default one has happened. Copying it allocates nothing.
    class Event {
      public:
        Event() noexcept = default;

      private:
        friend TimelineState;
        Event(const TimelineState* timeline, std::size_t slot, unsigned long long capture) noexcept
            : timeline_(timeline), slot_(slot), capture_(capture) {}
        const TimelineState* timeline_ = nullptr;
        std::size_t slot_ = 0;
        unsigned long long capture_ = 0;  // of the CUDA graph capture that it was recorded in, 0: none
    };

    TimelineState(StreamRef stream, const TimelineOptions& options, SourceLocation where)
        : TimelineState(stream, options, DeviceGuard(chosen(options, where), where), where) {}
    TimelineState(const TimelineState&) = delete;
    TimelineState& operator=(const TimelineState&) = delete;

    Event record() noexcept {
        const unsigned long long capture = capture_of(*this);
        EventRing& ring = capture == 0 ? events_ : captured_events_;
        const std::size_t slot = ring.advance();
        keep(cudaEventRecord(ring.native(slot), stream_.native()), "cudaEventRecord");
        return {this, slot, capture};
    }

    void wait(const Event& event) noexcept {
        if (event.timeline_ == nullptr || event.timeline_ == this) { return; }
        const unsigned long long capture = capture_of(*this);
        if (event.capture_ != capture) {
            // A stream joins a capture by waiting for one of its events; a capture that is over is not joined.
            const bool joins = capture == 0 && capture_of(*event.timeline_) == event.capture_;
            if (!joins) { return; }
        }
        const EventRing& ring = event.capture_ == 0 ? event.timeline_->events_ : event.timeline_->captured_events_;
        keep(cudaStreamWaitEvent(stream_.native(), ring.native(event.slot_), 0), "cudaStreamWaitEvent");
    }

    void synchronize(SourceLocation where) const {
        check(failure_, failed_call_, where);
        if (watch_ == nullptr) {
            stream_.synchronize(where);
            return;
        }
        watch_->begin();
        for (;;) {
            const cudaError_t code = cudaStreamQuery(stream_.native());
            if (code != cudaErrorNotReady) {
                check(code, "cudaStreamQuery", where);
                return;
            }
            static_cast<void>(cudaGetLastError());
            watch_->poll(where);
            std::this_thread::yield();
        }
    }

    unsigned long long capture() noexcept { return capture_of(*this); }
    StreamRef stream() const noexcept { return stream_; }
    int device() const noexcept { return device_; }
    std::span<std::byte> scratch() const noexcept { return scratch_.span(); }

  private:
    TimelineState(StreamRef stream, const TimelineOptions& options, const DeviceGuard&, SourceLocation where)
        : stream_(stream),
          device_(current_device(where)),
          watch_(options.watch),
          events_(options.events, where),
          captured_events_(options.events, where) {
        // A stream of another device is refused here and not in the first step.
        check(cudaEventRecord(events_.native(0), stream.native()), "cudaEventRecord", where);
        scratch_ = DeviceBuffer<std::byte>(options.scratch_bytes, stream, where);
    }

    static int chosen(const TimelineOptions& options, SourceLocation where) {
        return options.device < 0 ? current_device(where) : options.device;
    }

    /// The capture that the timeline's stream is part of at the moment, 0: none.
    unsigned long long capture_of(const TimelineState& timeline) noexcept {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        const cudaError_t code = cudaStreamGetCaptureInfo(timeline.stream_.native(), &status, &id);
        keep(code, "cudaStreamGetCaptureInfo");
        return code == cudaSuccess && status == cudaStreamCaptureStatusActive ? id : 0;
    }

    void keep(cudaError_t code, std::string_view call) noexcept {
        if (code == cudaSuccess) { return; }
        static_cast<void>(cudaGetLastError());
        if (failure_ == cudaSuccess) {
            failure_ = code;
            failed_call_ = call;
        }
    }

    StreamRef stream_;
    int device_;
    Watch* watch_;
    EventRing events_;
    EventRing captured_events_;  // an event that was recorded in a capture must not be waited for outside of it
    DeviceBuffer<std::byte> scratch_;
    cudaError_t failure_ = cudaSuccess;
    std::string_view failed_call_;  // a literal
};

}  // namespace shardkit::gpu
