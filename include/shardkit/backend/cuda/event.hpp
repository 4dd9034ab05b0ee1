// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// A reference to a CUDA event with another owner.
class EventRef {
  public:
    explicit EventRef(cudaEvent_t event) noexcept : event_(event) {}

    cudaEvent_t native() const noexcept { return event_; }

    /// Returns whether the work before the event's latest record has ended; true if it was never recorded. Does not
    /// wait.
    /// @throws Error, also for earlier work of the device that failed
    bool happened(SourceLocation where = SourceLocation::current()) const {
        const detail::RelaxedCapture relaxed;
        const cudaError_t code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        detail::check(code, "cudaEventQuery", where);
        return true;
    }
    /// Makes the host wait until the event has happened.
    /// @throws Error, also for earlier work of the device that failed
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        const detail::RelaxedCapture relaxed;
        detail::check(cudaEventSynchronize(event_), "cudaEventSynchronize", where);
    }

  private:
    cudaEvent_t event_;
};

/// Says whether an event takes the time at which it happens.
enum class EventTime : std::uint8_t { none, taken };

/// Owns a CUDA event of the current device. Move-only.
class Event {
  public:
    /// Creates the event, without its time.
    /// @throws Error
    explicit Event(SourceLocation where = SourceLocation::current()) : Event(EventTime::none, where) {}
    /// Creates the event.
    /// @throws Error
    explicit Event(EventTime time, SourceLocation where = SourceLocation::current()) {
        cudaEvent_t made = nullptr;
        const unsigned int flags = time == EventTime::taken ? cudaEventDefault : cudaEventDisableTiming;
        detail::check(cudaEventCreateWithFlags(&made, flags), "cudaEventCreateWithFlags", where);
        event_.reset(made);
    }

    EventRef ref() const noexcept { return EventRef(event_.get()); }

  private:
    struct End {
        void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, End> event_;
};

}  // namespace shardkit::gpu

namespace shardkit::gpu::detail {

/// A fixed number of events that mark points of one stream in turn. An event that is recorded again marks a later
/// point: who waits for a point that is no longer marked waits for the first one behind it that is.
class EventRing {
  public:
    /// Creates the events.
    /// @throws std::invalid_argument for a ring of no events; Error
    EventRing(std::size_t size, SourceLocation where) {
        if (size == 0) { throw_invalid_argument(where, "EventRing: no events, expected at least 1"); }
        events_.reserve(size);
        for (std::size_t i = 0; i < size; ++i) { events_.emplace_back(where); }
    }

    /// Returns the event for the next point of the stream, which is number points().
    cudaEvent_t next() noexcept {
        const std::uint64_t point = points_.load(std::memory_order_relaxed);
        return events_[static_cast<std::size_t>(point % events_.size())].ref().native();
    }
    /// Counts the point that was marked.
    void marked() noexcept { points_.fetch_add(1, std::memory_order_relaxed); }
    /// Returns the number of points so far. For any thread.
    std::uint64_t points() const noexcept { return points_.load(std::memory_order_relaxed); }
    /// Returns the first point that is still marked. For any thread.
    std::uint64_t oldest() const noexcept {
        const std::uint64_t marked = points();
        return marked < events_.size() ? 0 : marked - events_.size();
    }
    /// Returns the event of a point, or of the first one behind it that is still marked. For any thread.
    cudaEvent_t at(std::uint64_t point) const noexcept {
        return events_[static_cast<std::size_t>(std::max(point, oldest()) % events_.size())].ref().native();
    }

  private:
    std::vector<Event> events_;
    std::atomic<std::uint64_t> points_ = 0;
};

}  // namespace shardkit::gpu::detail
