// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/backend/cuda/event_ref.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// The owner of a CUDA event of the current device, without timing. Move-only.
class Event {
  public:
    /// @throws Error
    explicit Event(SourceLocation where = SourceLocation::current()) {
        check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags", where);
    }
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() {
        if (event_ != nullptr) { static_cast<void>(cudaEventDestroy(event_)); }
    }

    EventRef ref() const noexcept { return EventRef(event_); }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace shardkit::gpu
