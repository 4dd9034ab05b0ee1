// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace shardkit::gpu::detail {

/// Decides how often a host that waits looks whether it is over: without rest at first, then ever more rarely. It
/// rests for a sixteenth of the time that it has waited, at most 1 ms, and so comes at most that much late.
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
