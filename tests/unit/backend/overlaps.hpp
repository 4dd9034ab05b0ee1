// SPDX-License-Identifier: Apache-2.0
// What tests of overlap on the threads engine share: the options, and how ranks wait for each other outside of calls.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch_options.hpp>

#include "unit/backend/rank_checks.hpp"

namespace rank_checks {

using shardkit::threads::LaunchOptions;
inline const LaunchOptions on_threads{.overlap = shardkit::threads::Overlap::threads};

/// What ranks wait for that must not wait for each other in a call.
class Flag {
  public:
    void set() noexcept { ++count_; }
    /// Returns once so many have set it. @throws where they do not
    void await(int count = 1) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (count_ < count) {
            expect(std::chrono::steady_clock::now() < end, "the others come this far");
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }

  private:
    std::atomic<int> count_{0};
};

}  // namespace rank_checks
