// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cuda/watch.hpp>

namespace shardkit::gpu {

/// What a Timeline keeps to mark points of its stream.
struct TimelineOptions {
    /// Events of the ring. With fewer than the events that are waited for later, waiters wait for more work than they
    /// need; results are the same.
    std::size_t events = 256;
    /// Device memory for the temporary storage of kernels.
    std::size_t scratch_bytes = (std::size_t{1} << 20U) + (std::size_t{64} << 10U);
    /// The stream's device; -1: the current one.
    int device = -1;
    /// Looked at while the host waits for the stream; outlives the timeline. Null: nothing is.
    Watch* watch = nullptr;
};

}  // namespace shardkit::gpu
