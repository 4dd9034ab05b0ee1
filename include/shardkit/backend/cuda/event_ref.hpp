// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// A CUDA event that somebody else owns.
class EventRef {
  public:
    explicit EventRef(cudaEvent_t event) noexcept : event_(event) {}

    cudaEvent_t native() const noexcept { return event_; }

    /// Whether the work before the event's latest record is over; true when it was never recorded. Does not wait.
    /// @throws Error, also for earlier work of the device that failed
    bool happened(SourceLocation where = SourceLocation::current()) const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        check(code, "cudaEventQuery", where);
        return true;
    }
    /// Waits in the host until it happened.
    /// @throws Error, also for earlier work of the device that failed
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        check(cudaEventSynchronize(event_), "cudaEventSynchronize", where);
    }

  private:
    cudaEvent_t event_;
};

}  // namespace shardkit::gpu
