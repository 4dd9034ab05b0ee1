// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/memory/host_buffer.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_launch_test {

namespace {

using namespace shardkit;
using Comm = shardkit::Communicator;

/// Restores the limit on the address space.
class AddressSpaceLimit {
  public:
    explicit AddressSpaceLimit(std::size_t beyond_what_is_used) {
        getrlimit(RLIMIT_AS, &old_);
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        rlimit lower = old_;
        lower.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + beyond_what_is_used;
        setrlimit(RLIMIT_AS, &lower);
    }
    ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &old_); }
    AddressSpaceLimit(const AddressSpaceLimit&) = delete;
    AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

  private:
    rlimit old_{};
};

}  // namespace

TEST_CASE("threads: every rank runs once, on a thread of its own") {
    constexpr std::size_t rank_counts[] = {1, 2, 5, 33};
    for (const std::size_t ranks : rank_counts) {
        std::vector<std::thread::id> ids(ranks);
        std::vector<int> calls(ranks);
        threads::launch(ranks, [&](const Comm& world) {
            ids[world.rank()] = std::this_thread::get_id();
            ++calls[world.rank()];
            rank_checks::expect(world.size() == ranks && world.axes() == "world", "the world");
            barrier(world, {});
        });
        std::set<std::thread::id> distinct(ids.begin(), ids.end());
        distinct.insert(std::this_thread::get_id());
        CHECK(distinct.size() == ranks + 1);
        CHECK(calls == std::vector<int>(ranks, 1));
    }
}

TEST_CASE("threads: zero ranks and a deadlock check without an interval are refused") {
    const auto nothing = [](const Comm&) {};
    CHECK_THROWS_AS(threads::launch(0, nothing), std::invalid_argument);
    CHECK_THROWS_AS(threads::launch_and_collect(0, nothing), std::invalid_argument);
    CHECK_THROWS_AS(threads::launch(1, nothing, {.deadlock_check = std::chrono::milliseconds(0)}),
                    std::invalid_argument);
    CHECK_THROWS_AS(threads::launch(1, nothing, {.deadlock_check = std::chrono::milliseconds(-5)}),
                    std::invalid_argument);
}

TEST_CASE("threads: launches nest and follow each other") {
    std::atomic<int> runs{0};
    for (int i = 0; i < 3; ++i) {
        threads::launch(2, [&](const Comm& outer) {
            threads::launch(3, [&](const Comm& inner) {
                barrier(inner, {});
                ++runs;
            });
            barrier(outer, {});
        });
    }
    CHECK(runs == 18);
}

TEST_CASE("threads: ranks may take their communicator by value, by reference, and move-only functions are fine") {
    threads::launch(2, [](Comm world) { barrier(world, {}); });
    threads::launch(2, [](auto& world) { barrier(world, {}); });
    threads::launch(2, [state = std::make_unique<int>(5)](const Comm& world) mutable {
        rank_checks::expect(*state == 5, "the state");
        barrier(world, {});
    });
}

TEST_CASE("threads: when there are too many ranks, none runs and the caller is told what one costs") {
    if (rank_checks::sanitized) { return; }  // sanitizers need the address space themselves
    std::atomic<int> runs{0};
    {
        const AddressSpaceLimit limit(std::size_t{64} << 20U);  // room for a few stacks
        CHECK_THROWS_WITH_AS(threads::launch(64, [&](const Comm&) { ++runs; }),
                             doctest::Contains("of 64 ranks: each takes a thread with "), std::system_error);
    }
    for (const std::size_t ranks : {std::size_t{100'000}, std::size_t{1} << 40U}) {
        CHECK_THROWS_WITH_AS(
            threads::launch(ranks, [&](const Comm&) { ++runs; }),
            doctest::Contains((" bytes of " + std::to_string(ranks) + " ranks: each takes ").c_str()), MemoryError);
    }
    CHECK(runs == 0);
    threads::launch(64, [&](const Comm&) { ++runs; });
    CHECK(runs == 64);
}

}  // namespace threads_launch_test
