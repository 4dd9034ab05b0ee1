// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

/// Owns a CUDA event of the current device, without timing. Move-only.
class Event {
  public:
    /// Creates the event.
    /// @throws Error
    explicit Event(SourceLocation where = SourceLocation::current()) {
        cudaEvent_t made = nullptr;
        detail::check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags", where);
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

/// A fixed number of events that mark points of one stream in turn. A slot that is recorded again marks a later point
/// of the same stream: who waits for the earlier point waits for more, never for less.
class EventRing {
  public:
    /// Creates the events.
    /// @throws std::invalid_argument for a ring of no events; Error
    EventRing(std::size_t size, SourceLocation where) {
        if (size == 0) { throw_invalid_argument(where, "EventRing: no events, expected at least 1"); }
        events_.reserve(size);
        for (std::size_t i = 0; i < size; ++i) { events_.emplace_back(where); }
    }

    /// Returns the next slot to record.
    std::size_t advance() noexcept {
        const std::size_t slot = next_;
        next_ = slot + 1 == events_.size() ? 0 : slot + 1;
        return slot;
    }
    std::size_t size() const noexcept { return events_.size(); }
    cudaEvent_t native(std::size_t slot) const noexcept { return events_[slot].ref().native(); }

  private:
    std::vector<Event> events_;
    std::size_t next_ = 0;
};

}  // namespace shardkit::gpu::detail
