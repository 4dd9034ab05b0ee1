// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Refers to a CUDA event that somebody else owns.
class EventRef {
  public:
    explicit EventRef(cudaEvent_t event) noexcept : event_(event) {}

    cudaEvent_t native() const noexcept { return event_; }

    /// Says whether the work before the event's latest record is over; true when it was never recorded. Does not
    /// wait.
    /// @throws Error, also for earlier work of the device that failed
    bool happened(SourceLocation where = SourceLocation::current()) const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        detail::check(code, "cudaEventQuery", where);
        return true;
    }
    /// Waits in the host until it happened.
    /// @throws Error, also for earlier work of the device that failed
    void synchronize(SourceLocation where = SourceLocation::current()) const {
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

/// Holds a fixed number of events that take turns in marking points of one stream. A slot that is recorded again
/// marks a later point of the same stream, so that who waits for the earlier one waits for more and never for less.
class EventRing {
  public:
    /// Creates the events.
    /// @throws std::invalid_argument for a ring of no events; Error
    EventRing(std::size_t size, SourceLocation where) {
        if (size == 0) { throw_invalid_argument(where, "EventRing: no events, expected at least 1"); }
        events_.reserve(size);
        for (std::size_t i = 0; i < size; ++i) { events_.emplace_back(where); }
    }

    /// Returns the slot whose turn it is.
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
