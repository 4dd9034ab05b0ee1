// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/comm/stream.hpp>

namespace command_queue_test {

namespace {

using shardkit::Stream;
using shardkit::host::detail::CommandQueue;

struct Planted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace

TEST_CASE("CommandQueue: commands run once, in order, on one other thread, many more than the ring holds") {
    for (const std::uint32_t spins : {0U, 2000U}) {
        CommandQueue queue(spins);
        std::vector<std::size_t> seen;
        std::thread::id runner;
        constexpr std::size_t count = 10 * CommandQueue::slots + 3;
        for (std::size_t i = 0; i < count; ++i) {
            CHECK(queue.submit([&seen, &runner, i] {
                seen.push_back(i);
                runner = std::this_thread::get_id();
            }) == i + 1);
        }
        queue.wait(queue.submitted());
        REQUIRE(seen.size() == count);
        for (std::size_t i = 0; i < count; ++i) { CHECK(seen[i] == i); }
        CHECK(runner != std::this_thread::get_id());
    }
}

TEST_CASE("CommandQueue: submit returns while the command runs, wait does not") {
    CommandQueue queue;
    std::atomic<bool> go{false};
    std::atomic<int> done{0};
    const auto first = queue.submit([&] {
        while (!go) { std::this_thread::yield(); }
        ++done;
    });
    const auto second = queue.submit([&] { ++done; });
    CHECK(done == 0);
    go = true;
    queue.wait(first);
    CHECK(done >= 1);
    queue.wait(second);
    CHECK(done == 2);
}

TEST_CASE("CommandQueue: a full ring makes the submitter wait and loses nothing") {
    CommandQueue queue;
    std::atomic<bool> go{false};
    std::size_t ran = 0;
    queue.submit([&] {
        while (!go) { std::this_thread::yield(); }
    });
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        go = true;
    });
    for (std::size_t i = 0; i < 2 * CommandQueue::slots; ++i) {
        queue.submit([&ran] { ++ran; });
    }
    CHECK(go);  // the ring is shorter than what was submitted
    queue.wait(queue.submitted());
    CHECK(ran == 2 * CommandQueue::slots);
    opener.join();
}

TEST_CASE("CommandQueue: a failure drops later commands, is thrown once, and then the queue works again") {
    CommandQueue queue;
    int ran = 0;
    queue.submit([&] { ++ran; });
    const auto failing = queue.submit([] { throw Planted("planted"); });
    const auto after = queue.submit([&] { ran += 100; });
    CHECK_THROWS_AS(queue.wait(failing), Planted);
    CHECK_NOTHROW(queue.wait(after));
    CHECK(ran == 1);
    queue.submit([&] { ++ran; });
    CHECK_NOTHROW(queue.wait(queue.submitted()));
    CHECK(ran == 2);
}

TEST_CASE("CommandQueue: its end runs what was submitted, and forgets a failure that nobody waited for") {
    int ran = 0;
    {
        CommandQueue queue;
        for (int i = 0; i < 100; ++i) {
            queue.submit([&ran] { ++ran; });
        }
    }
    CHECK(ran == 100);
    {
        CommandQueue queue;
        queue.submit([] { throw Planted("planted"); });
        queue.submit([&ran] { ++ran; });
    }
    CHECK(ran == 100);
}

TEST_CASE("Stream: a default stream runs work in the caller and its events have happened") {
    const Stream stream;
    int ran = 0;
    stream.submit([&] { ++ran; });
    CHECK(ran == 1);
    CHECK(stream.is_inline());
    CHECK_NOTHROW(stream.wait(stream.record()));
    CHECK_NOTHROW(stream.wait(shardkit::Event{}));
    CHECK_NOTHROW(stream.synchronize());
    CHECK_THROWS_AS(stream.submit([] { throw Planted("planted"); }), Planted);
}

TEST_CASE("Stream: events order the work of streams") {
    for (int repeat = 0; repeat < 100; ++repeat) {
        CommandQueue first_queue;
        CommandQueue second_queue;
        const Stream first(first_queue);
        const Stream second(second_queue);
        const Stream here;
        int value = 0;  // no atomic: the events are what orders the threads
        first.submit([&] {
            std::this_thread::yield();
            value = 1;
        });
        second.wait(first.record());
        second.submit([&] { value = 10 * value + 2; });
        here.wait(second.record());
        value = 10 * value + 3;
        first.wait(here.record());  // has happened
        first.submit([&] { value = 10 * value + 4; });
        first.wait(first.record());
        first.synchronize();
        CHECK(value == 1234);
    }
}

TEST_CASE("Stream: settling waits, and leaves a failure to the next wait") {
    CommandQueue queue;
    const Stream stream(queue);
    std::atomic<bool> go{false};
    const auto fail = [&] {
        stream.submit([&go] {
            while (!go) { std::this_thread::yield(); }
            throw Planted("planted");
        });
        return stream.record();
    };
    for (const bool by_event : {false, true}) {
        go = false;
        const auto failed = fail();
        std::thread opener([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            go = true;
        });
        if (by_event) {
            Stream().settle(failed);
        } else {
            stream.settle();
        }
        CHECK(go);
        opener.join();
        CHECK_THROWS_AS(Stream().wait(failed), Planted);
        CHECK_NOTHROW(stream.synchronize());
    }
}

TEST_CASE("Stream: an inline stream that waits for an event is told of the failure before it") {
    CommandQueue queue;
    const Stream stream(queue);
    const Stream here;
    stream.submit([] { throw Planted("planted"); });
    CHECK_THROWS_AS(here.wait(stream.record()), Planted);
    CHECK_NOTHROW(stream.synchronize());
}

}  // namespace command_queue_test
