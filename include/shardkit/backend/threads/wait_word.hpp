// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/shared/wait_word.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads::detail {

using shared::detail::padding;
using shared::detail::Progress;
using shared::detail::SpinBudget;

/// Lets threads of one process sleep on a word.
struct ThreadSleep {
    std::atomic<std::uint32_t> word{0};

    void sleep(std::uint32_t seen) const noexcept { word.wait(seen, std::memory_order_acquire); }
    void wake_all() noexcept { word.notify_all(); }
};

using WaitWord = shared::detail::WaitWord<ThreadSleep>;

/// Announces that a rank waits before it sleeps, so that the launching thread can detect that all ranks wait for
/// each other. Written by one thread, read by another; used only by waits that really block.
class WaitRecord : public host::detail::WaitCount {
  public:
    void begin(const WaitWord& word, std::uint32_t target) noexcept {
        word_.store(&word, std::memory_order_relaxed);
        target_.store(target, std::memory_order_relaxed);
        step();
    }
    /// Returns whether the rank waits for something that has not come.
    bool stuck() const noexcept {
        return is_waiting() &&
               word_.load(std::memory_order_relaxed)->progress(target_.load(std::memory_order_relaxed)) ==
                   Progress::pending;
    }

  private:
    std::atomic<const WaitWord*> word_{nullptr};
    std::atomic<std::uint32_t> target_{0};
};

}  // namespace shardkit::threads::detail
