// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/backoff.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/named_ranges.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Watches while the host waits for a stream, so that a failure elsewhere ends the wait: a
/// communicator whose peer is gone never completes its work.
class Watch {
  public:
    Watch() = default;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// Tells the watch that the host has to wait: a watch with a deadline starts to count.
    virtual void begin() noexcept {}
    /// Looks; it is called again and again while the work is not over, and what it throws leaves the wait.
    virtual void poll(SourceLocation where) = 0;

  protected:
    ~Watch() = default;
};

/// Says what a Timeline keeps to mark points of its stream.
struct TimelineOptions {
    /// Counts the events of the ring. With fewer than the events that are waited for later, waiters wait for more
    /// work than they need; results are the same.
    std::size_t events = 256;
    /// Sizes the device memory for the temporary storage of kernels. It is zero when it is made, and the count at its
    /// start, of the blocks of a norm that are done, is zero again behind each launch.
    std::size_t scratch_bytes = (std::size_t{1} << 20U) + (std::size_t{64} << 10U);
    /// Chooses the stream's device; -1: the current one.
    int device = -1;
    /// Points to what watches while the host waits for the stream, and outlives the timeline. Null: nothing is.
    Watch* watch = nullptr;
};

namespace detail {

/// Holds what a Timeline owns and its references share; the rules stand at TimelineRef. One thread at a time.
class TimelineState {
  public:
    /// Marks a point of one timeline. A default one has happened. Copying it allocates nothing.
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
        : TimelineState(stream, options, DeviceGuard(device_or_current(options.device, where), where), where) {}
    TimelineState(const TimelineState&) = delete;
    TimelineState& operator=(const TimelineState&) = delete;

    Event record() noexcept {
        const unsigned long long capture = capture_of(*this);
        EventRing& ring = capture == 0 ? events_ : captured_events_;
        const std::size_t slot = ring.advance();
        if (capture == 0) { ++recorded_; }
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
        await([&] { return cudaStreamQuery(stream_.native()); }, "cudaStreamQuery", where);
    }
    void synchronize(const Event& event, SourceLocation where) const {
        check(failure_, failed_call_, where);
        if (event.timeline_ != this || event.capture_ != 0) { return; }
        const EventRef awaited(events_.native(event.slot_));
        if (watch_ == nullptr) {
            awaited.synchronize(where);
            return;
        }
        await([&] { return cudaEventQuery(awaited.native()); }, "cudaEventQuery", where);
    }

    bool advanced() noexcept {
        if (recorded_ > events_.size()) { passed_ = std::max(passed_, recorded_ - events_.size()); }
        const std::uint64_t before = passed_;
        while (passed_ < recorded_ &&
               cudaEventQuery(events_.native(static_cast<std::size_t>(passed_ % events_.size()))) == cudaSuccess) {
            ++passed_;
        }
        static_cast<void>(cudaGetLastError());
        return passed_ != before;
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

    /// Returns the capture that the timeline's stream is part of at the moment, 0: none.
    unsigned long long capture_of(const TimelineState& timeline) noexcept {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        const cudaError_t code = cudaStreamGetCaptureInfo(timeline.stream_.native(), &status, &id);
        keep(code, "cudaStreamGetCaptureInfo");
        return code == cudaSuccess && status == cudaStreamCaptureStatusActive ? id : 0;
    }

    /// Waits until `query` answers anything else than "not ready".
    template <class Query>
    void await(const Query& query, std::string_view call, SourceLocation where) const {
        cudaError_t code = query();
        if (code == cudaErrorNotReady) {
            watch_->begin();
            for (const Backoff backoff; code == cudaErrorNotReady; code = query()) {
                static_cast<void>(cudaGetLastError());
                watch_->poll(where);
                backoff.rest();
            }
        }
        check(code, call, where);
    }

    void keep(cudaError_t code, std::string_view call) noexcept {
        if (code == cudaSuccess) { return; }
        static_cast<void>(cudaGetLastError());
        // What was given to a spoilt capture is never done: no edge is missing, and the end of the capture says so.
        if (code == cudaErrorStreamCaptureInvalidated) { return; }
        if (failure_ == cudaSuccess) {
            failure_ = code;
            failed_call_ = call;
        }
    }

    StreamRef stream_;
    int device_;
    Watch* watch_;
    EventRing events_;
    std::uint64_t recorded_ = 0;  // of events_, ever
    std::uint64_t passed_ = 0;    // those of which it is known that they happened
    EventRing captured_events_;   // an event that was recorded in a capture must not be waited for outside of it
    DeviceBuffer<std::byte> scratch_;
    cudaError_t failure_ = cudaSuccess;
    std::string_view failed_call_;  // a literal
};

}  // namespace detail

class Timeline;

/// Refers to a Timeline; it is the Stream of the engines that run on CUDA devices. The timeline outlives it, its
/// events and those who wait for them; one host thread uses it.
/// `record` and `wait` return at once, allocate nothing and do not throw, because windows end in destructors: an
/// error of theirs is kept, and every later `synchronize` of that timeline throws it, as an edge of the order is
/// missing. Waiting for the timeline's own event does nothing.
/// During the capture of a CUDA graph an event belongs to the capture that it was recorded in. Waiting in a capture
/// for an event from outside of it, or after the capture for an event from inside, does nothing: the launch of the
/// graph is what is ordered. Waiting for an event of a capture that still runs makes the waiting stream part of that
/// capture. A step is therefore captured, and its graph launched, so, with the rank's Streams:
///     begin the capture in streams.compute;  streams.fork();
///     the step;
///     streams.join();  end the capture in streams.compute;
///     after it, also when an exception ended it: streams.join();  streams.fork();
///     behind the other streams' earlier work, before their later:
///     streams.join();  launch the graph in streams.compute;  streams.fork().
class TimelineRef {
  public:
    /// Marks a point of one timeline. A default one has happened. Copying it allocates nothing.
    using Event = detail::TimelineState::Event;
#ifdef SHARDKIT_HAS_NVTX
    using Ranges = detail::NamedRanges;
#endif

    /// Marks the work given to the stream so far.
    Event record() const noexcept { return state_->record(); }
    /// Orders work given to the stream from here on behind the event; the host does not wait.
    void wait(const Event& event) const noexcept { state_->wait(event); }
    /// Waits in the host until all work given to the stream so far is over; the timeline's Watch is polled meanwhile.
    /// @throws Error of the stream's work, or of an earlier `record` or `wait`; what the Watch throws
    void synchronize(SourceLocation where = SourceLocation::current()) const { state_->synchronize(where); }

    /// Waits so until an event of this timeline has happened; does nothing for one of a capture. Not in a capture.
    /// @throws the same
    void synchronize(const Event& event, SourceLocation where = SourceLocation::current()) const {
        state_->synchronize(event, where);
    }
    /// Says whether any of the stream's events has happened that had not when this was asked last. Not in a capture.
    bool advanced() const noexcept { return state_->advanced(); }

    /// Returns the capture of a CUDA graph that the stream is part of, 0: none.
    unsigned long long capture() const noexcept { return state_->capture(); }

    cudaStream_t native() const noexcept { return state_->stream().native(); }
    /// Returns device memory for the temporary storage of the kernel that is enqueued next.
    std::span<std::byte> scratch() const noexcept { return state_->scratch(); }
    int device() const noexcept { return state_->device(); }

  private:
    friend Timeline;
    explicit TimelineRef(detail::TimelineState& state) noexcept : state_(&state) {}
    detail::TimelineState* state_;
};

static_assert(shardkit::Stream<TimelineRef>);

/// Gives a stream what the library needs beside it: events and scratch memory, all made here, so that a step
/// allocates nothing. It neither moves nor copies; the stream outlives it.
/// Cost:    2 * events CUDA events and scratch_bytes of device memory; its end waits for the device.
class Timeline {
  public:
    /// Makes the events and scratch memory of a stream.
    /// @throws std::invalid_argument for no events; Error, also when the stream is not of that device
    explicit Timeline(StreamRef stream, const TimelineOptions& options = {},
                      SourceLocation where = SourceLocation::current())
        : state_(stream, options, where) {}

    TimelineRef ref() noexcept { return TimelineRef(state_); }

  private:
    detail::TimelineState state_;
};

}  // namespace shardkit::gpu
