// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/verbs/split.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_failure_test {

namespace {

using namespace shardkit;
using namespace rank_checks;
using Comm = shardkit::Communicator;
using threads::launch_and_collect;

/// One call of each verb, with memory of its own that is freed when the call throws.
void call_verb(std::size_t verb, const Comm& comm) {
    const std::size_t n = comm.size();
    std::vector<float> a(n * 100, 1.0F);
    std::vector<float> b(n * 100);
    const std::span<const float> in(a);
    const std::span<float> out(b);
    const std::size_t next = (comm.rank() + 1) % n;
    const std::size_t previous = (comm.rank() + n - 1) % n;
    switch (verb) {
        case 0:
            all_gather(comm, in.first(100), out, {});
            break;
        case 1:
            all_gather_in_place(comm, out, {});
            break;
        case 2:
            reduce_scatter(comm, ReduceOp::sum, in, out.first(100), {});
            break;
        case 3:
            reduce_scatter_in_place(comm, ReduceOp::max, out, {});
            break;
        case 4:
            all_reduce(comm, ReduceOp::sum, in, out, {});
            break;
        case 5:
            all_reduce_in_place(comm, ReduceOp::min, out, {});
            break;
        case 6:
            broadcast(comm, out, n - 1, {});
            break;
        case 7:
            all_to_all(comm, in, out, {});
            break;
        case 8:
            barrier(comm, {});
            break;
        case 9:
            split(comm, comm.rank() % 2, 0, "part");
            break;
        case 10:
            send_receive(comm, in, next, out, previous, {});
            break;
        case 11:                    // even ranks send first
            if (n == 1) { break; }  // a rank cannot meet itself
            if (comm.rank() % 2 == 0) { send(comm, in, next, {}); }
            receive(comm, out, previous, {});
            if (comm.rank() % 2 == 1) { send(comm, in, next, {}); }
            break;
        case 12: {
            std::vector<std::size_t> counts(n, 100);
            all_to_all_uneven(comm, in, counts, out, counts, {});
            break;
        }
        default:
            expect(false, "a verb's number");
    }
}
constexpr std::size_t verbs = 13;

enum class Ending { exception, early_return };

/// All ranks but one want to make `calls` calls and a last barrier; `bad` ends before call `position`.
std::vector<std::exception_ptr> fail_at(std::size_t ranks, std::size_t bad, std::size_t position, Ending ending,
                                        threads::WaitMode waiting, std::size_t calls, auto call) {
    return launch_and_collect(ranks,
                              [&](const Comm& world) {
                                  for (std::size_t i = 0; i < calls; ++i) {
                                      if (world.rank() == bad && i == position) {
                                          if (ending == Ending::early_return) { return; }
                                          throw Planted("planted");
                                      }
                                      call(i, world);
                                  }
                                  barrier(world, {});
                              },
                              {.waiting = waiting});
}

/// Every other rank must end with a PeerError that names `bad`, in time.
void check_failure(std::size_t ranks, std::size_t bad, std::size_t position, Ending ending, threads::WaitMode waiting,
                   std::size_t calls, auto call) {
    std::vector<std::exception_ptr> errors;
    const auto took = duration_of([&] { errors = fail_at(ranks, bad, position, ending, waiting, calls, call); });
    CHECK(took < time_to_end);
    const bool threw = ending == Ending::exception;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Outcome seen = outcome(errors[rank]);
        CAPTURE(rank);
        CAPTURE(seen.text);
        if (rank == bad) {
            CHECK(seen.kind == (threw ? Kind::planted : Kind::none));
        } else {
            REQUIRE(seen.kind == Kind::peer);
            CHECK(seen.rank == bad);
            CHECK(contains(seen.text, threw ? detail::concat("rank ", bad, " failed: planted")
                                            : detail::concat("rank ", bad, " returned before ")));
            CHECK(contains(seen.text, "threads_failure_test.cpp:"));
        }
    }
}

constexpr std::array endings{Ending::exception, Ending::early_return};
constexpr std::array wait_modes{threads::WaitMode::block, threads::WaitMode::spin_briefly};

}  // namespace

TEST_CASE("threads: an exception or early return on any rank, at any verb and position, ends all ranks by name") {
    constexpr std::size_t ranks = 4;
    for (std::size_t verb = 0; verb < verbs; ++verb) {
        for (std::size_t bad = 0; bad < ranks; ++bad) {
            for (std::size_t position = 0; position < 3; ++position) {
                for (const Ending ending : endings) {
                    for (const threads::WaitMode waiting : wait_modes) {
                        CAPTURE(verb);
                        CAPTURE(bad);
                        CAPTURE(position);
                        check_failure(ranks, bad, position, ending, waiting, 3,
                                      [&](std::size_t, const Comm& world) { call_verb(verb, world); });
                    }
                }
            }
        }
    }
}

TEST_CASE("threads: a failure between verbs of different kinds ends all ranks by name") {
    constexpr std::size_t ranks = 3;
    for (std::size_t bad = 0; bad < ranks; ++bad) {
        for (std::size_t position = 0; position < verbs; ++position) {
            for (const Ending ending : endings) {
                check_failure(ranks, bad, position, ending, threads::WaitMode::automatic, verbs, call_verb);
            }
        }
    }
}

TEST_CASE("threads: a failure reaches ranks that wait in another sub-communicator") {
    constexpr std::size_t ranks = 6;
    for (std::size_t bad = 0; bad < ranks; ++bad) {
        for (const Ending ending : endings) {
            for (std::size_t verb = 0; verb < verbs; ++verb) {
                CAPTURE(bad);
                CAPTURE(verb);
                check_failure(ranks, bad, 1, ending, threads::WaitMode::automatic, 2,
                              [&](std::size_t, const Comm& world) {
                                  const Comm row = split(world, world.rank() / 3, 0, "tp");
                                  call_verb(verb, row);
                                  call_verb(verb, split(world, world.rank() % 3, 0, "dp"));
                              });
            }
        }
    }
}

TEST_CASE("threads: a rank that has returned spoils only what needs it") {
    threads::launch(4, [](const Comm& world) {
        const Comm half = split(world, world.rank() / 2, 0, "half");
        if (world.rank() == 0) { return; }
        std::vector<float> a(10, 2.0F);
        // Ranks 2 and 3 go on in their own group, and pass messages over the world.
        for (int i = 0; world.rank() >= 2 && i < 200; ++i) {
            all_reduce_in_place(half, ReduceOp::sum, std::span<float>(a), {});
            const std::size_t peer = 5 - world.rank();
            std::vector<float> b(10);
            send_receive(world, std::span<const float>(a), peer, std::span<float>(b), peer, {});
            expect(a == b, "the message");
            a.assign(10, 2.0F);
        }
    });
}

TEST_CASE("threads: a message whose sender could not go on is not received, the next one is") {
    for (int repeat = 0; repeat < 50; ++repeat) {
        const auto errors = launch_and_collect(3, [&](const Comm& world) {
            std::vector<float> received(4);
            if (world.rank() == 0) {
                const std::vector<float> first(4, 1.0F);
                const std::vector<float> second(4, 2.0F);
                try {
                    send_receive(world, std::span<const float>(first), 1, std::span<float>(received), 2, {});
                    expect(false, "an error");
                } catch (const PeerError& error) { expect(error.rank() == 2, "rank 2"); }
                send(world, std::span<const float>(second), 1, {});
            } else if (world.rank() == 1) {
                // Sometimes early enough to take the first message, which is as well.
                if (repeat % 2 == 0) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
                receive(world, std::span<float>(received), 0, {});
                const float got = received[0];
                expect(got == 1.0F || got == 2.0F, "one of the messages");
                if (got == 1.0F) { receive(world, std::span<float>(received), 0, {}); }
                expect(received == std::vector<float>(4, 2.0F), "the second message, whole");
            }
        });
        for (const auto& error : errors) { CHECK(outcome(error).text == ""); }
    }
}

TEST_CASE("threads: a call that was complete when its peers ended still succeeds") {
    // Nobody waits for anybody after the last barrier, however the threads are scheduled.
    for (int i = 0; i < (sanitized ? 300 : 3000); ++i) {
        CHECK_NOTHROW(threads::launch(3, [](const Comm& world) { barrier(world, {}); }));
        CHECK_NOTHROW(threads::launch(2, [](const Comm& world) {
            float value = 1.0F;
            all_reduce_in_place(world, ReduceOp::sum, std::span<float>(&value, 1), {});
            expect(value == 2.0F, "the sum");
        }));
        CHECK_NOTHROW(threads::launch(2, [](const Comm& world) {
            float value = 1.0F;
            if (world.rank() == 0) { send(world, std::span<const float>(&value, 1), 1, {}); }
            if (world.rank() == 1) { receive(world, std::span<float>(&value, 1), 0, {}); }
        }));
    }
}

TEST_CASE("threads: a rank that catches a peer's early return can end well") {
    const auto errors = launch_and_collect(3, [](const Comm& world) {
        if (world.rank() == 1) { return; }
        try {
            barrier(world, {});
            expect(false, "an error");
        } catch (const PeerError& error) { expect(error.rank() == 1, "rank 1"); }
    });
    for (const auto& error : errors) { CHECK(outcome(error).text.empty()); }
}

TEST_CASE("threads: a poisoned group refuses every later call, a later group is born poisoned") {
    std::atomic<int> refused{0};
    const auto errors = launch_and_collect(3, [&](const Comm& world) {
        const Comm pair = split(world, world.rank() / 2, 0, "pair");  // ranks 0 and 1; rank 2 alone
        if (world.rank() == 2) { throw Planted("planted"); }
        for (std::size_t verb = 0; verb < verbs; ++verb) {
            try {
                while (true) { call_verb(verb, world); }
            } catch (const PeerError& error) {
                if (error.rank() == 2) { ++refused; }
            }
        }
        // Even a pair that does not need rank 2 is told: a failed run ends everywhere.
        try {
            while (true) { call_verb(8, split(pair, 0, 0, "born poisoned")); }
        } catch (const PeerError& error) {
            if (error.rank() == 2) { ++refused; }
        }
    });
    CHECK(refused == 2 * (static_cast<int>(verbs) + 1));
    CHECK(outcome(errors[0]).kind == Kind::none);
    CHECK(outcome(errors[2]).kind == Kind::planted);
}

TEST_CASE("threads: launch rethrows the lowest rank's own error, unchanged") {
    const auto failing = [](const Comm& world) {
        if (world.rank() == 3) { throw 42; }
        if (world.rank() == 2) { throw Planted("from rank 2"); }
        barrier(world, {});
    };
    CHECK_THROWS_WITH_AS(threads::launch(4, failing), "from rank 2", Planted);
    CHECK_THROWS_AS(threads::launch(4,
                                    [](const Comm& world) {
                                        if (world.rank() == 3) { throw 42; }
                                        barrier(world, {});
                                    }),
                    int);
    try {  // every failure is a PeerError: the lowest rank's
        threads::launch(4, [](const Comm& world) {
            if (world.rank() != 2) { barrier(world, {}); }
        });
        FAIL("no error");
    } catch (const PeerError& error) {
        CHECK(error.rank() == 2);
        CHECK(error.engine() == "threads");
        CHECK(error.call() == "barrier over world");
        CHECK(contains(error.what(), "rank 2 returned before rank "));
    }
}

TEST_CASE("threads: an exception that is no std::exception is reported too") {
    const auto errors = launch_and_collect(2, [](const Comm& world) {
        if (world.rank() == 0) { throw 42; }
        barrier(world, {});
    });
    CHECK(contains(outcome(errors[1]).text, "rank 0 failed: an exception that is no std::exception"));
}

TEST_CASE("threads: failures that race with running verbs end every rank and free no memory in use") {
    const int repeats = 2000;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        const auto seed = static_cast<std::uint64_t>(repeat);
        const std::size_t ranks = 2 + verb_oracle::mixed(seed) % 3;
        const std::size_t bad = verb_oracle::mixed(seed + 1000000) % ranks;
        const std::size_t position = verb_oracle::mixed(seed + 2000000) % 6;
        const bool throws = repeat % 2 == 0;
        const auto errors = launch_and_collect(ranks, [&](const Comm& world) {
            const Comm part = split(world, world.rank() % 2, 0, "part");
            for (std::size_t i = 0; i < 6; ++i) {
                if (world.rank() == bad && i == position) {
                    if (throws) { throw Planted("planted"); }
                    return;
                }
                const std::size_t verb = verb_oracle::mixed(seed * 6 + i) % verbs;
                call_verb(verb, i % 2 == 0 ? world : part);
            }
            barrier(world, {});
        });
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const Outcome seen = outcome(errors[rank]);
            const bool right = rank == bad ? seen.kind == (throws ? Kind::planted : Kind::none)
                                           : seen.kind == Kind::peer && seen.rank == bad;
            if (!right) { FAIL("repeat ", repeat, " rank ", rank, ": ", seen.text); }
        }
    }
}

}  // namespace threads_failure_test
