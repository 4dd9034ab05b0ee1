// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace benchmarks::policies {

void BusyWork::run(std::uint64_t links) noexcept {
    volatile double seed = 0.5;  // unknown to the compiler, and the result is stored
    double x = seed;
    for (std::uint64_t i = 0; i < links; ++i) { x = x * 0.999 + 0.001; }
    seed = x;
}

void BusyWork::wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

BusyWork BusyWork::calibrate() {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](std::uint64_t links) {
        const auto begin = Clock::now();
        run(links);
        return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    std::uint64_t links = 1U << 12U;
    while (seconds(links) < 2e-3) { links *= 2; }
    double best = seconds(links);
    for (int i = 0; i < 9; ++i) { best = std::min(best, seconds(links)); }
    return BusyWork(static_cast<double>(links) / best);
}

}  // namespace benchmarks::policies
