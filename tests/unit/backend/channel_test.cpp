// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/group.hpp>

namespace channel_test {

using shardkit::threads::detail::Channel;
using shardkit::threads::detail::Message;

TEST_CASE("channel: a message goes from posted over claimed to consumed, and the next one follows") {
    Channel channel;
    Message message;
    for (int i = 0; i < 3; ++i) {
        const auto base = channel.base();
        CHECK(channel.claim(base) == nullptr);
        REQUIRE(channel.post(base, message));
        CHECK(channel.base() == base);
        CHECK(channel.claim(base) == &message);
        CHECK(channel.claim(base) == nullptr);
        channel.consume(base);
        CHECK(channel.base() == Channel::consumed(base));
    }
}

TEST_CASE("channel: a message taken back cannot be claimed, and the channel stays usable") {
    Channel channel;
    Message first;
    Message second;
    const auto base = channel.base();
    REQUIRE(channel.post(base, first));
    channel.retract(base, shardkit::threads::detail::SpinBudget());
    CHECK(channel.claim(base) == nullptr);
    const auto next = channel.base();
    CHECK(next == Channel::consumed(base));
    REQUIRE(channel.post(next, second));
    CHECK(channel.claim(next) == &second);
}

TEST_CASE("channel: taking a claimed message back waits until it is consumed, poisoned or not") {
    for (int poisoned = 0; poisoned < 2; ++poisoned) {
        Channel channel;
        Message message;
        std::atomic<bool> consuming{false};
        const auto base = channel.base();
        REQUIRE(channel.post(base, message));
        REQUIRE(channel.claim(base) == &message);
        if (poisoned == 1) { channel.word().poison(); }
        std::thread receiver([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            consuming = true;
            channel.consume(base);
        });
        channel.retract(base, shardkit::threads::detail::SpinBudget());
        CHECK(consuming);
        receiver.join();
        channel.retract(base, shardkit::threads::detail::SpinBudget());  // long consumed: returns at once
    }
}

TEST_CASE("channel: poison refuses posting and claiming, and an unclaimed message may go at once") {
    Channel channel;
    Message message;
    const auto base = channel.base();
    REQUIRE(channel.post(base, message));
    channel.word().poison();
    CHECK(channel.claim(base) == nullptr);
    channel.retract(base, shardkit::threads::detail::SpinBudget());
    CHECK(channel.claim(base) == nullptr);
    Channel fresh;
    fresh.word().poison();
    CHECK_FALSE(fresh.post(fresh.base(), message));
}

}  // namespace channel_test
