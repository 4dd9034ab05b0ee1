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
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/named_ranges.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timed_events.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::gpu {

/// Observes a wait of the host for a stream, so that a failure elsewhere can end the wait: a communicator whose peer
/// is gone never completes its work.
class Watch : shardkit::detail::NotCopied {
  public:
    /// Called when the host has to wait; a watch with a deadline starts to count.
    virtual void begin() noexcept {}
    /// Called repeatedly while the work has not ended; an exception of it ends the wait.
    virtual void poll(SourceLocation where) = 0;
    /// Called when the host need not wait any longer. An exception of it says that the work was ended, and not done.
    virtual void passed(SourceLocation where) { static_cast<void>(where); }
    /// Returns whether work was ended, so that it may look done and is not.
    virtual bool has_cut_off() const noexcept { return false; }

  protected:
    ~Watch() = default;
};

/// The resources with which a Timeline marks points of its stream.
struct TimelineOptions {
    /// The number of events in the ring. Whoever waits for an earlier one waits for the oldest in the ring, and so
    /// longer than necessary; results are the same.
    std::size_t events = 256;
    /// The bytes of device memory for temporary storage of kernels. It is zeroed at construction, and zero again
    /// after each launch of a norm.
    std::size_t scratch_bytes = (std::size_t{1} << 20U) + (std::size_t{64} << 10U);
    /// The stream's device; -1: the current one.
    int device = -1;
    /// The watch that observes waits of the host for the stream; it must outlive the timeline. Null: none.
    Watch* watch = nullptr;
};

namespace detail {

/// The state of a Timeline, which its references share; see TimelineRef for the rules. One thread at a time.
class TimelineState final : public engine::WorkQueue {
  public:
    using Event = shardkit::Event;

    TimelineState(StreamRef stream, const TimelineOptions& options, SourceLocation where)
        : TimelineState(stream, options, DeviceGuard(device_or_current(options.device, where), where), where) {}

    [[noreturn]] std::uint64_t submit(const Function& /*of_host*/) override {
        throw_usage_error({},
                          "a function of the host was given to a stream of a device, whose memory the host does not "
                          "read; expected a kernel that nvcc compiles, or the engine self, threads or mpi");
    }
    Event record() noexcept override {
        const unsigned long long capture = capture_of(*this);
        EventRing& ring = capture == 0 ? events_ : captured_events_;
        const std::uint64_t point = ring.points();
        keep(cudaEventRecord(ring.next(), stream_.native()), "cudaEventRecord");
        ring.marked();
        if (capture == 0) { return {*this, point}; }
        if (capture != last_capture_) {
            last_capture_ = capture;
            of_last_capture_ = point;
        }
        return {*this, point | captured};
    }

    void wait(const Event& event) noexcept override {
        if (event.queue() == nullptr || event.queue() == this) { return; }
        if (!event.queue()->on_device()) { return event.queue()->settle(event); }
        const auto& other = static_cast<const TimelineState&>(*event.queue());
        const unsigned long long capture = capture_of(*this);
        if (other.capture_in(event) != capture) {
            // A stream joins a capture by waiting for one of its events. A capture that has ended cannot be joined.
            const bool joins = capture == 0 && capture_of(other) == other.capture_in(event);
            if (!joins) { return; }
        }
        const EventRing& ring = is_captured(event) ? other.captured_events_ : other.events_;
        keep(cudaStreamWaitEvent(stream_.native(), ring.at(event.point() & ~captured), 0), "cudaStreamWaitEvent");
    }

    void synchronize(SourceLocation where) override {
        check(failure_, failed_call_, where);
        const std::uint64_t given = events_.points();
        if (watch_ == nullptr || (trusting_ > 0 && watch_->has_cut_off())) {
            stream_.synchronize(where);
            return;
        }
        await([&] { return cudaStreamQuery(stream_.native()); }, "cudaStreamQuery", where);
        waited_ = given;
    }
    void synchronize(const Event& event, SourceLocation where) override {
        check(failure_, failed_call_, where);
        if (event.queue() != this || is_captured(event)) { return; }
        const cudaEvent_t awaited = events_.at(event.point());
        if (watch_ == nullptr) {
            const RelaxedCapture relaxed;
            return check(cudaEventSynchronize(awaited), "cudaEventSynchronize", where);
        }
        await([&] { return cudaEventQuery(awaited); }, "cudaEventQuery", where);
    }

    void settle() noexcept override {
        try {
            synchronize(SourceLocation{});
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }
    void settle(const Event& event) noexcept override {
        try {
            synchronize(event, {});
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }

    void copy(const void* from, void* to, std::size_t bytes, SourceLocation where) override {
        if (bytes == 0) { return; }
        const DeviceGuard on_device(device_, where);
        // A copy of memory that is not pinned may wait inside the call, where no Watch can end it.
        synchronize(where);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.native()), "cudaMemcpyAsync", where);
        synchronize(where);
    }

    void give_copy(const void* from, void* to, std::size_t bytes) override {
        const DeviceGuard on_device(device_);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.native()), "cudaMemcpyAsync");
    }
    void call_on_host(void (*function)(void*), void* object) override {
        const DeviceGuard on_device(device_);
        check(cudaLaunchHostFunc(stream_.native(), function, object), "cudaLaunchHostFunc");
    }

    bool advanced(std::uint64_t& passed) const noexcept override {
        const RelaxedCapture relaxed;
        passed = std::max(passed, events_.oldest());
        const std::uint64_t before = passed;
        while (passed < events_.points() && cudaEventQuery(events_.at(passed)) == cudaSuccess) { ++passed; }
        static_cast<void>(cudaGetLastError());
        return passed != before;
    }
    bool is_ahead(const Event& event) const noexcept override {
        if (event.queue() != this || is_captured(event)) { return false; }
        const RelaxedCapture relaxed;
        const bool result = cudaEventQuery(events_.at(event.point())) == cudaErrorNotReady;
        static_cast<void>(cudaGetLastError());
        return result;
    }

    bool was_waited_for(const Event& event) const noexcept override {
        return event.queue() == nullptr || (event.queue() == this && !is_captured(event) && event.point() < waited_);
    }
    void trust(bool begins) noexcept override { trusting_ += begins ? 1 : -1; }

    unsigned long long capture() noexcept override { return capture_of(*this); }
#ifdef SHARDKIT_HAS_NVTX
    const engine::WorkRanges* ranges() const noexcept override { return &named_ranges; }
#endif
    engine::WorkTimes* make_times(std::size_t count, SourceLocation where) override {
        const DeviceGuard on_device(device_, where);
        return new TimedEvents(count, where);
    }
    cudaStream_t native() const noexcept override { return stream_.native(); }
    int device() const noexcept override { return device_; }
    std::span<std::byte> scratch() const noexcept override { return scratch_.span(); }

  private:
    TimelineState(StreamRef stream, const TimelineOptions& options, const DeviceGuard&, SourceLocation where)
        : WorkQueue(true),
          stream_(stream),
          device_(current_device(where)),
          watch_(options.watch),
          events_(options.events, where),
          captured_events_(options.events, where) {
        // This refuses a stream of another device here, and not in the first step.
        check(cudaEventRecord(events_.next(), stream.native()), "cudaEventRecord", where);
        scratch_ = device_bytes(options.scratch_bytes, stream, where);
    }

    /// A bit of the points of events that were recorded in a graph capture.
    static constexpr std::uint64_t captured = std::uint64_t{1} << 63U;
    static bool is_captured(const Event& event) noexcept { return (event.point() & captured) != 0; }
    /// Returns the graph capture in which an event of this timeline was recorded, 0: none. Of those that have ended,
    /// all but the last are one that is none of CUDA's: a stream is in one at a time.
    unsigned long long capture_in(const Event& event) const noexcept {
        if (!is_captured(event)) { return 0; }
        return (event.point() & ~captured) >= of_last_capture_ ? last_capture_ : ~0ULL;
    }
    /// Returns the graph capture that the timeline's stream is currently part of, 0: none.
    unsigned long long capture_of(const TimelineState& timeline) noexcept {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        const cudaError_t code = cudaStreamGetCaptureInfo(timeline.stream_.native(), &status, &id);
        keep(code, "cudaStreamGetCaptureInfo");
        return code == cudaSuccess && status == cudaStreamCaptureStatusActive ? id : 0;
    }

    /// Waits until `query` returns anything other than "not ready".
    template <class Query>
    void await(const Query& query, std::string_view call, SourceLocation where) const {
        const RelaxedCapture relaxed;
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
        watch_->passed(where);
    }

    void keep(cudaError_t code, std::string_view call) noexcept {
        if (code == cudaSuccess) { return; }
        static_cast<void>(cudaGetLastError());
        // Work given to an invalidated capture never runs: no order is missing, and the end of the capture reports
        // the error.
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
    EventRing captured_events_;  // events recorded in a capture must not be waited for outside of it
    unsigned long long last_capture_ = 0;
    std::uint64_t of_last_capture_ = 0;  // the first point of its events
    std::uint64_t waited_ = 0;           // the host has waited for work before this point
    int trusting_ = 0;
    OwnedBytes scratch_;
    cudaError_t failure_ = cudaSuccess;
    std::string_view failed_call_;  // a string literal
};

}  // namespace detail

class Timeline;

/// A reference to a Timeline: the stream of a CUDA device. The timeline must outlive its references,
/// its events and those who wait for them; one host thread uses it.
/// `record` and `wait` return at once, allocate nothing and do not throw, as windows end in destructors. An error of
/// theirs is kept, and every later `synchronize` of that timeline throws it, as an order is missing then. Waiting for
/// the timeline's own event does nothing. `synchronize` polls the timeline's Watch, and throws what that throws; for
/// an event of a capture it does nothing.
/// During the capture of a CUDA graph, an event belongs to the capture in which it was recorded. Waiting in a capture
/// for an event from outside of it, or after the capture for an event from inside, does nothing: only the launch of
/// the graph is ordered. Waiting for an event of a running capture makes the waiting stream part of that capture.
/// Capture a step and launch its graph as follows, with the rank's Streams:
///     begin the capture in streams.compute;  streams.fork();
///     the step;
///     streams.join();  end the capture in streams.compute;
///     after it, even if an exception ended it: streams.join();  streams.fork();
///     launch behind the other streams' earlier work, and before their later work:
///     streams.join();  launch the graph in streams.compute;  streams.fork().
class TimelineRef : public shardkit::Stream {
  public:
    /// Takes a stream of an engine whose memory is a device's.
    /// @throws UsageError for another one
    explicit TimelineRef(const shardkit::Stream& stream, SourceLocation where = {}) : shardkit::Stream(stream) {
        static_cast<void>(stream.native(where));
    }

    /// Makes later work of the stream wait for the event; the host does not wait.
    void wait(const shardkit::Event& event) const noexcept { settle(event); }
    /// A function of the host has no place in it.
    template <class Work>
    void submit(const Work& work) const = delete;

    /// Returns whether any of the stream's events has happened since the last call with this `passed`, a caller's
    /// own, which begins at 0. For any thread.
    bool advanced(std::uint64_t& passed) const noexcept { return queue_->advanced(passed); }
    /// Returns whether work before an event of this timeline is still to be done; false for an event of a capture.
    /// For any thread.
    bool is_ahead(const shardkit::Event& event) const noexcept { return queue_->is_ahead(event); }

    cudaStream_t native() const noexcept { return queue_->native(); }
    /// Returns device memory for temporary storage of the next kernel.
    std::span<std::byte> scratch() const noexcept { return queue_->scratch(); }
    int device() const noexcept { return queue_->device(); }

  private:
    friend Timeline;
    explicit TimelineRef(detail::TimelineState& state) noexcept : shardkit::Stream(state) {}
};

/// Adds to a stream what the library needs: events and scratch memory, all allocated here, so that a step allocates
/// nothing. It cannot be moved or copied; the stream must outlive it.
/// Cost:    2 * events CUDA events and scratch_bytes of device memory; its destructor waits for the device.
class Timeline {
  public:
    /// Makes the events and the scratch memory of a stream.
    /// @throws std::invalid_argument for no events; Error, also when the stream is not of that device
    explicit Timeline(StreamRef stream, const TimelineOptions& options = {},
                      SourceLocation where = SourceLocation::current())
        : state_(stream, options, where) {}

    TimelineRef ref() noexcept { return TimelineRef(state_); }

  private:
    detail::TimelineState state_;
};

}  // namespace shardkit::gpu
