// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace shardkit::threads {

/// Holds new threads back until all of them exist, so that if one cannot be made no rank has begun.
class StartGate {
  public:
    /// Called by each new thread; false means: end without doing anything.
    bool wait() const noexcept {
        state_.wait(closed, std::memory_order_acquire);
        return state_.load(std::memory_order_acquire) == open_for_all;
    }
    void open() noexcept { set(open_for_all); }
    void cancel() noexcept { set(cancelled); }

  private:
    static constexpr std::uint32_t closed = 0;
    static constexpr std::uint32_t open_for_all = 1;
    static constexpr std::uint32_t cancelled = 2;

    void set(std::uint32_t state) noexcept {
        state_.store(state, std::memory_order_release);
        state_.notify_all();
    }

    std::atomic<std::uint32_t> state_{closed};
};

}  // namespace shardkit::threads
