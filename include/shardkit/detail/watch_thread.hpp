// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::detail {

/// A thread that looks at something from time to time, as long as this lives: all such threads of the library.
class WatchThread : NotCopied {
  public:
    /// Runs watch(sleep) in the thread. sleep(time) returns true after that time, and false as soon as this ends,
    /// when `watch` must return. It must not throw.
    template <class Watch>
    explicit WatchThread(Watch watch)
        : thread_(
              [this, watch]() mutable { watch([this](std::chrono::milliseconds time) { return sleep(time); }); }) {}
    ~WatchThread() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        ended_.notify_one();
        thread_.join();
    }

  private:
    bool sleep(std::chrono::milliseconds time) {
        std::unique_lock lock(mutex_);
        // The system clock, because thread sanitizers know the wait on it.
        return !ended_.wait_until(lock, std::chrono::system_clock::now() + bounded_wait(time), [&] { return ends_; });
    }

    std::mutex mutex_;
    std::condition_variable ended_;
    bool ends_ = false;
    std::thread thread_;  // last: it uses all the others
};

}  // namespace shardkit::detail
