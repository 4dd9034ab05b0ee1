// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/threads/late_watch.hpp>
#include <shardkit/comm/stream.hpp>

namespace deadlock_watch_test {

namespace {

using namespace shardkit;
using host::detail::CommandQueue;
using threads::detail::DeadlockWatch;
using threads::detail::Fate;
using threads::detail::RankState;
using threads::detail::WaitWord;

/// Two ranks that wait for two words.
struct Waiters {
    std::unique_ptr<RankState[]> states = std::make_unique<RankState[]>(2);
    WaitWord words[2];
    DeadlockWatch watch{std::span<const RankState>(states.get(), 2)};

    void wait(std::size_t rank) { states[rank].record.begin(words[rank], 2); }
};

/// Returns once `holds()`, which another thread brings about.
template <class F>
void await(F holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::yield();
    }
}

/// Whether two looks at the rank, the only one, find a deadlock.
bool found_twice(const RankState& state) {
    DeadlockWatch watch(std::span<const RankState>(&state, 1));
    const bool first = watch.look();
    CHECK_FALSE(first);
    return watch.look();
}

}  // namespace

TEST_CASE("deadlock watch: a rank that waits for its streams waits as these do") {
    enum class Work { computes, waits_for_a_peer, waits_for_the_other_stream };
    for (const Work work : {Work::computes, Work::waits_for_a_peer, Work::waits_for_the_other_stream}) {
        CAPTURE(static_cast<int>(work));
        WaitWord word;
        std::atomic<bool> begun = false;
        std::atomic<bool> end = false;
        RankState state;
        for (auto& queue : state.queues) { queue = detail::Owned<CommandQueue>(new CommandQueue); }
        CHECK_FALSE(found_twice(state));  // the rank computes, its streams have nothing to do
        const auto hold = [&](threads::detail::ThreadState& stream) {
            const bool waits = work != Work::computes;
            if (waits) { stream.record.begin(word, 2); }
            begun = true;
            while (!end) { std::this_thread::yield(); }
            if (waits) { stream.record.end(); }
        };
        if (work == Work::waits_for_the_other_stream) {
            state.queues[0]->submit([&] { hold(state.streams[0]); });
            const Stream first(*state.queues[0]);
            Stream(*state.queues[1]).wait(first.record());
            await([&] { return state.queues[1]->rests(); });
        } else {
            state.queues[1]->submit([&] { hold(state.streams[1]); });
        }
        await([&] { return begun.load(); });
        CHECK_FALSE(found_twice(state));  // the rank computes
        std::thread rank([&] { state.queues[1]->wait(1); });
        await([&] { return state.queues[1]->submitter_is_stuck(); });
        const bool waits = work != Work::computes;
        CHECK(state.stuck() == waits);
        CHECK(found_twice(state) == waits);
        const std::uint64_t before = state.progress();
        end = true;
        rank.join();
        CHECK(state.progress() > before);
        CHECK_FALSE(state.stuck());
    }
}

TEST_CASE("deadlock watch: two looks at the same waits find a deadlock, one does not") {
    Waiters w;
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look());
    CHECK(w.watch.look());
}

TEST_CASE("deadlock watch: a rank that waits again between the looks is alive") {
    Waiters w;
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look());
    w.states[1].record.end();
    w.wait(1);
    CHECK_FALSE(w.watch.look());
    CHECK(w.watch.look());
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
        for (int look = 0; look < 4; ++look) { CHECK_FALSE(w.watch.look()); }
    }
}

TEST_CASE("deadlock watch: ranks that have ended do not count") {
    Waiters w;
    w.wait(0);
    w.states[1].fate = Fate::returned;
    CHECK_FALSE(w.watch.look());
    CHECK(w.watch.look());
}

TEST_CASE("deadlock watch: ranks that stand still at different times are no deadlock") {
    Waiters w;
    for (int i = 0; i < 5; ++i) {  // one computes while the other waits, in turns
        const std::size_t waits = i % 2 == 0 ? 0 : 1;
        w.wait(waits);
        CHECK_FALSE(w.watch.look());
        w.states[waits].record.end();
    }
    w.wait(0);
    w.wait(1);
    CHECK_FALSE(w.watch.look());
}

}  // namespace deadlock_watch_test
