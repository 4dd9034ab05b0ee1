// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/helpers.hpp>
#include <shardkit/backend/host/host_stream.hpp>

namespace deferred_queue_test {

namespace {

using shardkit::host::HostStream;
using shardkit::host::detail::Bell;
using shardkit::host::detail::DeferredQueue;
using shardkit::host::detail::Helpers;
using shardkit::host::detail::Run;
using shardkit::host::detail::UsedMemory;

struct Planted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A command that has begun, and notes its number when it is run.
void begin(DeferredQueue& queue, std::vector<int>& seen, int number, const UsedMemory& used = {}) {
    queue.make_way(used);
    queue.submit_begun(
        [&seen, number](const Run& run) {
            if (!run.assists) { seen.push_back(number); }
        },
        used);
}

constexpr auto throws_planted = [](const Run& run) {
    if (!run.assists) { throw Planted("planted"); }
};

}  // namespace

TEST_CASE("DeferredQueue: commands run once, in order, where they are waited for") {
    DeferredQueue queue;
    const HostStream stream(queue);
    CHECK_FALSE(stream.is_inline());
    CHECK(stream.runs_on(queue));
    std::vector<int> seen;
    stream.submit([&] { seen.push_back(0); });
    const auto event = stream.record();
    begin(queue, seen, 1);
    CHECK(seen == std::vector<int>{0});  // what begins may not pass what has not begun
    begin(queue, seen, 2);
    HostStream().wait(event);
    CHECK(seen == std::vector<int>{0});
    const auto later = stream.record();
    begin(queue, seen, 3);
    HostStream().wait(later);
    CHECK(seen == std::vector<int>{0, 1, 2});
    stream.synchronize();
    stream.synchronize();
    CHECK(seen == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("DeferredQueue: many more commands than the ring holds run as their places are needed") {
    for (const bool begun : {false, true}) {
        DeferredQueue queue;
        std::vector<int> seen;
        constexpr int count = 5 * static_cast<int>(DeferredQueue::slots) + 3;
        for (int i = 0; i < count; ++i) {
            if (begun) {
                begin(queue, seen, i);
            } else {
                queue.submit([&seen, i] { seen.push_back(i); });
            }
        }
        CHECK(seen.size() == static_cast<std::size_t>(count) - DeferredQueue::slots);
        queue.wait(queue.submitted());
        REQUIRE(seen.size() == static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) { CHECK(seen[static_cast<std::size_t>(i)] == i); }
    }
}

TEST_CASE("DeferredQueue: a command begins beside those whose memory it does not disturb, behind the others") {
    std::array<double, 8> a{};
    std::array<double, 8> b{};
    const UsedMemory from_a_to_b{a.data(), 32, b.data(), 32};
    const auto runs = [&](const UsedMemory& next) {
        DeferredQueue queue;
        std::vector<int> seen;
        begin(queue, seen, 0, from_a_to_b);
        begin(queue, seen, 1, {a.data() + 7, 8, b.data() + 7, 8});
        begin(queue, seen, 2, next);
        const std::size_t before = seen.size();
        queue.wait(queue.submitted());
        CHECK(seen == std::vector<int>{0, 1, 2});
        return before;
    };
    CHECK(runs({a.data(), 64, nullptr, 0}) == 0);            // both only read
    CHECK(runs({nullptr, 0, b.data() + 4, 24}) == 0);        // between what they write
    CHECK(runs({a.data(), 0, b.data(), 0}) == 0);            // nothing
    CHECK(runs({b.data() + 3, 8, nullptr, 0}) == 1);         // reads what the first writes
    CHECK(runs({nullptr, 0, a.data() + 3, 8}) == 1);         // writes what it reads
    CHECK(runs({nullptr, 0, b.data() + 3, 8}) == 1);         // or writes
    CHECK(runs({nullptr, 0, b.data() + 4, 32}) == 2);        // what the second writes: the first runs before it
    CHECK(runs({b.data() + 4, 32, a.data() + 4, 24}) == 2);  // reads it
}

TEST_CASE("DeferredQueue: what a command throws comes at the next wait, once; until then only what has begun runs") {
    DeferredQueue queue;
    const HostStream stream(queue);
    std::vector<int> seen;
    queue.make_way({});
    queue.submit_begun(throws_planted, {});
    begin(queue, seen, 1);
    stream.submit([&] { seen.push_back(2); });
    const auto event = stream.record();
    stream.settle();  // says nothing
    CHECK(seen == std::vector<int>{1});
    CHECK_THROWS_AS(begin(queue, seen, 3), Planted);
    stream.synchronize();
    begin(queue, seen, 4);
    HostStream().wait(event);
    CHECK(seen == std::vector<int>{1});
    stream.synchronize();
    CHECK(seen == std::vector<int>{1, 4});
}

TEST_CASE("DeferredQueue: a stream that waits for another's event runs behind it") {
    DeferredQueue first;
    DeferredQueue second;
    std::vector<int> seen;
    begin(first, seen, 0);
    HostStream(second).wait(HostStream(first).record());
    HostStream(second).wait(HostStream(second).record());
    HostStream(second).wait(HostStream().record());
    CHECK(second.submitted() == 1);
    CHECK(seen.empty());
    begin(second, seen, 1);
    CHECK(seen == std::vector<int>{0});
    HostStream(second).synchronize();
    CHECK(seen == std::vector<int>{0, 1});
}

TEST_CASE("DeferredQueue: others run the next commands that may run, and no others") {
    DeferredQueue queue;
    std::vector<int> seen;
    CHECK_FALSE(queue.run_ready());
    for (int i = 0; i < 4; ++i) { begin(queue, seen, i); }
    CHECK_FALSE(queue.run_ready());
    queue.may_run(2);
    CHECK_FALSE(queue.run_ready());  // the first waits for something
    queue.may_run(1);
    CHECK(queue.run_ready());
    CHECK(seen == std::vector<int>{0, 1});
    queue.may_run(1);  // late
    CHECK_FALSE(queue.run_ready());
    queue.wait(3);
    CHECK(seen == std::vector<int>{0, 1, 2});
    queue.submit([&] { seen.push_back(9); });
    queue.may_run(4);
    CHECK(queue.run_ready());
    CHECK_FALSE(queue.run_ready());
    CHECK(seen == std::vector<int>{0, 1, 2, 3});
    queue.wait(queue.submitted());
    CHECK(seen == std::vector<int>{0, 1, 2, 3, 9});
}

TEST_CASE("DeferredQueue: a command that is taken back leaves its place to the next") {
    DeferredQueue queue;
    std::vector<int> seen;
    begin(queue, seen, 0);
    begin(queue, seen, 1);
    queue.take_back();
    CHECK(queue.submitted() == 1);
    begin(queue, seen, 2);
    queue.may_run(1);
    queue.may_run(2);
    CHECK(queue.run_ready());
    CHECK(seen == std::vector<int>{0, 2});
    queue.take_back();
    CHECK(seen == std::vector<int>{0, 2});
}

TEST_CASE("DeferredQueue: who waits for a command that a helper is at assists it, and it ends after both") {
    for (const std::uint32_t spins : {0U, 1000U}) {
        Bell bell;
        DeferredQueue queue(&bell, spins);
        Helpers helpers(bell);
        helpers.start(1, {&queue});
        const auto owner = std::this_thread::get_id();
        std::atomic<bool> begun{false};
        std::atomic<bool> assisted{false};
        std::atomic<bool> out{false};
        bool ended = false;
        bool early = false;
        queue.make_way({});
        queue.submit_begun(
            [&](const Run& run) {
                if (run.assists) {
                    assisted = std::this_thread::get_id() == owner;
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                    out = true;
                    return;
                }
                begun = true;
                while (!assisted) { std::this_thread::yield(); }
                run.door.close();
                early = !out;
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                ended = true;
            },
            {});
        queue.may_run(1);
        bell.ring();
        while (!begun) { std::this_thread::yield(); }
        queue.wait(1);
        CHECK(ended);
        CHECK_FALSE(early);
    }
}

TEST_CASE("DeferredQueue: of many helpers and the one who waits, one runs each command, in order") {
    Bell bell;
    std::array<std::unique_ptr<DeferredQueue>, 2> queues;
    for (auto& queue : queues) { queue = std::make_unique<DeferredQueue>(&bell, 100U); }
    Helpers helpers(bell);
    helpers.start(3, {queues[0].get(), queues[1].get()});
    std::array<std::vector<int>, 2> seen;
    constexpr int count = 3000;
    for (int i = 0; i < count; ++i) {
        for (std::size_t q = 0; q < 2; ++q) {
            begin(*queues[q], seen[q], i);
            if (i % 5 != 0) {
                queues[q]->may_run(queues[q]->submitted());
                bell.ring();
            }
        }
        if (i % 7 == 0) { queues[1]->wait(queues[1]->submitted()); }
    }
    for (std::size_t q = 0; q < 2; ++q) {
        queues[q]->wait(queues[q]->submitted());
        REQUIRE(seen[q].size() == count);
        for (int i = 0; i < count; ++i) { REQUIRE(seen[q][static_cast<std::size_t>(i)] == i); }
    }
}

TEST_CASE("DeferredQueue: what a command throws in a helper comes at the next wait, once") {
    Bell bell;
    DeferredQueue queue(&bell);
    Helpers helpers(bell);
    helpers.start(2, {&queue});
    for (int round = 0; round < 50; ++round) {
        std::atomic<bool> ran{false};
        queue.make_way({});
        queue.submit_begun(throws_planted, {});
        queue.make_way({});
        queue.submit_begun([&ran](const Run&) { ran = true; }, {});
        queue.may_run(queue.submitted() - 1);
        queue.may_run(queue.submitted());
        bell.ring();
        while (!ran) { std::this_thread::yield(); }
        CHECK_THROWS_AS(queue.wait(queue.submitted() - 1), Planted);
        queue.wait(queue.submitted());
    }
}

}  // namespace deferred_queue_test
