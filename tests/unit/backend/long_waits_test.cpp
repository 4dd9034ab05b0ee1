// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <ctime>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/detail/ticks.hpp>

namespace sk = shardkit;

namespace long_waits_test {

namespace {

using std::chrono::milliseconds;

/// Seconds of a processor that the calling thread has had.
double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("threads: with deadlock_check = milliseconds::max() the launching thread sleeps until its ranks end") {
    const double before = processor_seconds();
    sk::threads::launch(2, [](auto& /*world*/) { std::this_thread::sleep_for(milliseconds(500)); },
                        {.deadlock_check = milliseconds::max()});
    CHECK(processor_seconds() - before < 0.1);
}

TEST_CASE("bounded_wait: what is short stays as it is; the longest is later than any clock's now, and compares so") {
    CHECK(sk::detail::bounded_wait(milliseconds(50)) == milliseconds(50));
    CHECK(sk::detail::bounded_wait(milliseconds(-1)) == milliseconds(-1));
    const milliseconds longest = sk::detail::bounded_wait(milliseconds::max());
    CHECK(longest > std::chrono::hours(24 * 365));
    CHECK(std::chrono::system_clock::now() + longest > std::chrono::system_clock::now());
    CHECK(std::chrono::steady_clock::now() + longest > std::chrono::steady_clock::now());
    CHECK(std::chrono::nanoseconds(1) < longest);
}

}  // namespace long_waits_test
