// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <span>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/deadlock_watch.hpp>

#include "rank_checks.hpp"

namespace deadlock_watch_test {

namespace {

using namespace shardkit;
using rank_checks::contains;
using threads::detail::DeadlockWatch;
using threads::detail::Fate;
using threads::detail::RankState;
using threads::detail::Waiting;
using threads::detail::WaitWord;

/// Two ranks that wait for two words.
struct Waiters {
    std::unique_ptr<RankState[]> states = std::make_unique<RankState[]>(2);
    WaitWord words[2];
    std::string axes = "dp";
    DeadlockWatch watch{std::span<const RankState>(states.get(), 2)};

    void wait(std::size_t rank) {
        states[rank].record.begin(words[rank], 2, {Verb::barrier, &axes, 7, {"train.cpp", 12}});
    }
};

}  // namespace

TEST_CASE("deadlock watch: two looks at the same waits find a deadlock, one does not") {
    Waiters w;
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look().has_value());
    const auto found = w.watch.look();
    REQUIRE(found.has_value());
    CHECK(found->rank == 0);
    CHECK(contains(found->text, "rank 0 waits in barrier (call 7) over dp at train.cpp:12"));
    CHECK(contains(found->text, "rank 1 waits in barrier (call 7) over dp at train.cpp:12"));
}

TEST_CASE("deadlock watch: a rank that waits again between the looks is alive") {
    Waiters w;
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look().has_value());
    w.states[1].record.end();
    w.wait(1);
    CHECK_FALSE(w.watch.look().has_value());
    CHECK(w.watch.look().has_value());
}

TEST_CASE("deadlock watch: a rank that computes, is about to wake, or is told to give up is no part of one") {
    for (int way = 0; way < 3; ++way) {
        Waiters w;
        w.wait(0);
        if (way > 0) { w.wait(1); }
        if (way == 1) {
            w.words[1].leave(2);
            w.words[1].leave(2);
        }
        if (way == 2) { w.words[1].poison(); }
        for (int look = 0; look < 4; ++look) { CHECK_FALSE(w.watch.look().has_value()); }
    }
}

TEST_CASE("deadlock watch: ranks that have ended do not count") {
    Waiters w;
    w.wait(0);
    w.states[1].fate = Fate::returned;
    CHECK_FALSE(w.watch.look().has_value());
    const auto found = w.watch.look();
    REQUIRE(found.has_value());
    CHECK_FALSE(contains(found->text, "rank 1"));
}

TEST_CASE("deadlock watch: ranks that stand still at different times are no deadlock") {
    Waiters w;
    for (int i = 0; i < 5; ++i) {  // one computes while the other waits, in turns
        const std::size_t waits = i % 2 == 0 ? 0 : 1;
        w.wait(waits);
        CHECK_FALSE(w.watch.look().has_value());
        w.states[waits].record.end();
    }
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look().has_value());
}

}  // namespace deadlock_watch_test
