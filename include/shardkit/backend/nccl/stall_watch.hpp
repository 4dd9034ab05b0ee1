// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/detail/watch_thread.hpp>

namespace shardkit::nccl::detail {

/// A thread that notices that a peer is gone while the rank's own thread cannot: CUDA accepts about 1,000 launches of
/// a stream, and then blocks whoever launches more until some have ended, which they never do behind a verb whose
/// peer is gone.
class StallWatch : shardkit::detail::WatchThread {
  public:
    /// Begins to watch. Once `acts` has stayed the same and `stands_still()` has returned true for longer than
    /// `limit()`, it calls `end(acts seen)`, which says whether the watch is over. All are called in its thread, on
    /// `device`, and must not throw.
    template <class Limit, class StandsStill, class End>
    StallWatch(int device, Limit limit, const std::atomic<std::uint64_t>& acts, StandsStill stands_still, End end)
        : WatchThread([device, limit, &acts, stands_still, end](const auto& sleep) mutable {
              using Clock = std::chrono::steady_clock;
              using std::chrono::milliseconds;
              static_cast<void>(cudaSetDevice(device));
              const gpu::detail::RelaxedCapture relaxed;
              std::uint64_t seen = acts.load(std::memory_order_relaxed);
              for (auto since = Clock::now(); sleep(std::clamp(limit() / 8, milliseconds(1), milliseconds(1000)));) {
                  const std::uint64_t now_seen = acts.load(std::memory_order_relaxed);
                  if (now_seen != seen || !stands_still()) {
                      seen = now_seen;
                      since = Clock::now();
                  } else if (Clock::now() - since > limit() && end(seen)) {
                      return;
                  }
              }
          }) {}
};

}  // namespace shardkit::nccl::detail
