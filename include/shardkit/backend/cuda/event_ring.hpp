// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::gpu {

/// A fixed number of events that take turns in marking points of one stream. A slot that is recorded again marks a
/// later point of the same stream, so that who waits for the earlier one waits for more and never for less.
class EventRing {
  public:
    /// @throws std::invalid_argument for a ring of no events; Error
    EventRing(std::size_t size, SourceLocation where) {
        if (size == 0) { throw_invalid_argument(where, "EventRing: no events, expected at least 1"); }
        events_.reserve(size);
        for (std::size_t i = 0; i < size; ++i) { events_.emplace_back(where); }
    }

    /// The slot whose turn it is.
    std::size_t advance() noexcept {
        const std::size_t slot = next_;
        next_ = slot + 1 == events_.size() ? 0 : slot + 1;
        return slot;
    }
    cudaEvent_t native(std::size_t slot) const noexcept { return events_[slot].ref().native(); }

  private:
    std::vector<Event> events_;
    std::size_t next_ = 0;
};

}  // namespace shardkit::gpu
