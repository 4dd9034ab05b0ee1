// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/verbs/split.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_deadlock_test {

namespace {

using namespace shardkit;
using namespace rank_checks;
using Comm = shardkit::Communicator;
using threads::launch_and_collect;

/// Every rank must end with one message, that says what each of them waits for.
template <class F>
void check_deadlock(std::size_t ranks, const std::vector<std::string>& parts, F f) {
    for (const threads::WaitMode waiting : {threads::WaitMode::block, threads::WaitMode::spin_briefly}) {
        std::vector<std::exception_ptr> errors;
        CHECK(duration_of([&] { errors = launch_and_collect(ranks, f, {.waiting = waiting}); }) < time_to_end);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const Outcome seen = outcome(errors[rank]);
            CAPTURE(rank);
            CAPTURE(seen.text);
            CHECK(seen.kind == Kind::peer);
            CHECK(contains(seen.text, ": deadlock: no rank can go on"));
            for (const std::string& part : parts) { CHECK(contains(seen.text, part)); }
            CHECK(contains(seen.text, "threads_deadlock_test.cpp:"));
        }
    }
}

}  // namespace

TEST_CASE("threads: ranks that use two communicators in different orders are told what each waits for") {
    check_deadlock(2,
                   {"rank 1 has not entered all_gather of 4 fp32 at ", "(call 1 over tp), ",
                    "rank 0 has not entered barrier at ", "(call 0 over dp)"},
                   [](const Comm& world) {
                       const Comm tp = split(world, 0, 0, "tp");
                       const Comm dp = split(world, 0, 0, "dp");
                       std::vector<float> values(8);
                       barrier(tp, {});
                       if (world.rank() == 0) { all_gather_in_place(tp, std::span<float>(values), {}); }
                       barrier(dp, {});
                   });
}

TEST_CASE("threads: a ring of ranks that each wait in the next one's communicator is found") {
    check_deadlock(3,
                   {"rank 1 has not entered barrier at ", "(call 0 over a)", "rank 2 has not entered barrier at ",
                    "(call 0 over b)", "rank 0 has not entered barrier at ", "(call 0 over c)"},
                   [](const Comm& world) {
                       const Comm a = split(world, world.rank() == 2 ? 1 : 0, 0, "a");  // 0 1
                       const Comm b = split(world, world.rank() == 0 ? 1 : 0, 0, "b");  // 1 2
                       const Comm c = split(world, world.rank() == 1 ? 1 : 0, 0, "c");  // 2 0
                       const Comm first[] = {a, b, c};
                       const Comm second[] = {c, a, b};
                       barrier(first[world.rank()], {});
                       barrier(second[world.rank()], {});
                   });
}

TEST_CASE("threads: messages that nobody takes or sends are found") {
    const std::vector<float> values(4);
    check_deadlock(
        2,
        {"rank 0 has not answered send of 4 fp32 at ", "rank 1 has not answered send of 4 fp32 at ", "(over world)"},
        [&](const Comm& world) { send(world, std::span<const float>(values), 1 - world.rank(), {}); });
    check_deadlock(2, {"rank 1 has not answered receive of 4 fp32", "rank 0 has not entered barrier at "},
                   [&](const Comm& world) {
                       std::vector<float> received(4);
                       if (world.rank() == 0) { receive(world, std::span<float>(received), 1, {}); }
                       barrier(world, {});
                   });
    check_deadlock(1, {"rank 0 has not answered receive of 4 fp32 at "}, [](const Comm& world) {
        std::vector<float> received(4);
        receive(world, std::span<float>(received), 0, {});
    });
}

TEST_CASE("threads: a deadlock among the ranks that still run is found when others have ended") {
    const auto errors = launch_and_collect(3, [](const Comm& world) {
        const Comm pair = split(world, world.rank() / 2, 0, "pair");
        if (world.rank() == 2) { return; }
        float value = 0.0F;
        if (world.rank() == 0) { receive(pair, std::span<float>(&value, 1), 1, {}); }
        barrier(pair, {});
    });
    CHECK(outcome(errors[2]).kind == Kind::none);
    CHECK(contains(outcome(errors[0]).text, "rank 0 has not entered barrier"));
    CHECK(contains(outcome(errors[1]).text, "rank 1 has not answered receive"));
}

TEST_CASE("threads: a rank that computes for long is no deadlock") {
    threads::launch(3,
                    [](const Comm& world) {
                        if (world.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
                        barrier(world, {});
                        if (world.rank() == 2) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }
                        verb_checks::check_all_gather<float>(world, 10, 0);
                    },
                    {.deadlock_check = std::chrono::milliseconds(1)});
}

TEST_CASE("threads: ranks that wait often and briefly are no deadlock") {
    threads::launch(4,
                    [](const Comm& world) {
                        const Comm half = split(world, world.rank() % 2, 0, "half");
                        for (int i = 0; i < (sanitized ? 1000 : 10000); ++i) {
                            barrier(i % 3 == 0 ? world : half, {});
                        }
                    },
                    {.waiting = threads::WaitMode::block, .deadlock_check = std::chrono::milliseconds(1)});
}

}  // namespace threads_deadlock_test
