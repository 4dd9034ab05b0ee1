// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace shardkit::gpu::detail {

/// The pauses of a host that polls for the end of a wait: none at first, then ever longer ones. A pause is a
/// sixteenth of the time waited so far, at most 1 ms, so the end is noticed at most that much late.
class Backoff {
  public:
    void rest() const {
        constexpr auto without_rest = std::chrono::microseconds(500);
        constexpr Clock::duration longest = std::chrono::milliseconds(1);
        const Clock::duration waited = Clock::now() - begin_;
        if (waited < without_rest) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::min(waited / 16, longest));
        }
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_ = Clock::now();
};

}  // namespace shardkit::gpu::detail
