// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::nccl::detail {

/// A thread that notices that a peer is gone while the rank's own thread cannot: CUDA accepts about 1,000 launches of
/// a stream, and then blocks whoever launches more until some have ended, which they never do behind a verb whose
/// peer is gone.
class StallWatch : shardkit::detail::NotCopied {
  public:
    /// Begins to watch. Once `acts` has stayed the same and `stands_still()` has returned true for longer than
    /// `limit()`, it calls `end(acts seen)`, which says whether the watch is over. All are called in its thread, on
    /// `device`, and must not throw.
    template <class Limit, class StandsStill, class End>
    StallWatch(int device, Limit limit, const std::atomic<std::uint64_t>& acts, StandsStill stands_still, End end)
        : thread_([this, device, limit, &acts, stands_still, end]() mutable {
              static_cast<void>(cudaSetDevice(device));
              const gpu::detail::RelaxedCapture relaxed;
              std::uint64_t seen = acts.load(std::memory_order_relaxed);
              for (auto since = Clock::now(); sleep(limit());) {
                  const std::uint64_t now_seen = acts.load(std::memory_order_relaxed);
                  if (now_seen != seen || !stands_still()) {
                      seen = now_seen;
                      since = Clock::now();
                  } else if (Clock::now() - since > limit() && end(seen)) {
                      return;
                  }
              }
          }) {}
    ~StallWatch() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        stopped_.notify_all();
        thread_.join();
    }

  private:
    using Clock = std::chrono::steady_clock;

    /// Returns false when the watch is to stop.
    bool sleep(std::chrono::milliseconds limit) {
        const std::chrono::milliseconds pause =
            std::clamp(limit / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
        std::unique_lock lock(mutex_);
        // The system clock, because thread sanitizers know the wait on it.
        return !stopped_.wait_until(lock, std::chrono::system_clock::now() + pause, [&] { return over_; });
    }

    std::mutex mutex_;
    std::condition_variable stopped_;
    bool over_ = false;
    std::thread thread_;  // begins last
};

}  // namespace shardkit::nccl::detail
