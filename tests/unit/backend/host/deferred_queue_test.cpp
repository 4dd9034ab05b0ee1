// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/host_stream.hpp>

namespace deferred_queue_test {

namespace {

using shardkit::host::HostStream;
using shardkit::host::detail::DeferredQueue;
using shardkit::host::detail::UsedMemory;

struct Planted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A command that has begun, and notes its number when it is run.
void begin(DeferredQueue& queue, std::vector<int>& seen, int number, const UsedMemory& used = {}) {
    queue.make_way(used);
    queue.submit_begun([&seen, number] { seen.push_back(number); }, used);
}

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
    queue.submit_begun([] { throw Planted("planted"); }, {});
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

}  // namespace deferred_queue_test
