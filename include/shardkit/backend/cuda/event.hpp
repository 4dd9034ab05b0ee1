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

/// Says whether an event takes the time at which it happens.
enum class EventTime : std::uint8_t { none, taken };

/// Owns a CUDA event of the current device. Move-only.
class Event {
  public:
    /// Creates the event.
    /// @throws Error
    explicit Event(EventTime time = EventTime::none, SourceLocation where = SourceLocation::current()) {
        cudaEvent_t made = nullptr;
        const unsigned int flags = time == EventTime::taken ? cudaEventDefault : cudaEventDisableTiming;
        detail::check(cudaEventCreateWithFlags(&made, flags), "cudaEventCreateWithFlags", where);
        event_.reset(made);
    }

    cudaEvent_t native() const noexcept { return event_.get(); }
    /// Makes the host wait until the event's latest record has happened.
    /// @throws Error, also for earlier work of the device that failed
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        const detail::RelaxedCapture relaxed;
        detail::check(cudaEventSynchronize(native()), "cudaEventSynchronize", where);
    }

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
        for (std::size_t i = 0; i < size; ++i) { events_.emplace_back(EventTime::none, where); }
    }

    /// Returns the event for the next point of the stream, which is number points().
    cudaEvent_t next() noexcept {
        const std::uint64_t point = points_.load(std::memory_order_relaxed);
        return events_[static_cast<std::size_t>(point % events_.size())].native();
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
        return events_[static_cast<std::size_t>(std::max(point, oldest()) % events_.size())].native();
    }

  private:
    std::vector<Event> events_;
    std::atomic<std::uint64_t> points_ = 0;
};

}  // namespace shardkit::gpu::detail
