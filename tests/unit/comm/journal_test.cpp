// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

namespace journal_test {

namespace {

using namespace shardkit;

constexpr SourceLocation noted{"train.cpp", 7};

/// Notes what it sees, and leaves out all-reduces.
struct Watcher : recorder::CallObserver {
    std::vector<std::string> seen;

    bool before(const recorder::ObservedCall& call) override {
        note("before ", call);
        return call.call.signature.verb != Verb::all_reduce;
    }
    void after(const recorder::ObservedCall& call) override { note("after ", call); }

  private:
    void note(const char* when, const recorder::ObservedCall& call) {
        seen.push_back(when + std::string(name(call.call.signature.verb)) + " over " + std::string(call.axes) +
                       (call.input != nullptr ? " in" : "") + (call.output != nullptr ? " out" : "") + " " +
                       std::to_string(call.call.payload));
    }
};

}  // namespace

TEST_CASE("Journal: one label for one set of axes, with rows of its own") {
    engine::Journal journal;
    const engine::CommunicatorLabel& dp = journal.label("dp");
    const engine::CommunicatorLabel& tp = journal.label("tp");
    for (int i = 0; i < 100; ++i) { journal.label("axes " + std::to_string(i)); }
    CHECK(&journal.label("dp") == &dp);
    CHECK(dp.axes == "dp");
    CHECK(&dp.journal == &journal);
    CHECK(tp.first_row != dp.first_row);
    journal.end(tp, {{.verb = Verb::all_gather}, 40, noted}, 30);
    CHECK(journal.traffic().total(Verb::all_gather).payload.value == 40);
    CHECK(journal.traffic().entries().at(0).axes == "tp");
    CHECK(journal.traffic().entries().at(0).moved.value == 30);
}

TEST_CASE("Journal: the last calls, the oldest first, 1,024 at most") {
    engine::Journal journal;
    CHECK(journal.recorder().recent_calls().empty());
    const engine::CommunicatorLabel& dp = journal.label("dp");
    for (std::size_t i = 0; i < 2000; ++i) {
        journal.begin(dp, {{.verb = Verb::broadcast, .in = ElementType::fp32, .count = i, .argument = 1}, 0, noted});
    }
    const std::vector<recorder::RecentCall> calls = journal.recorder().recent_calls();
    REQUIRE(calls.size() == 1024);
    CHECK(calls.front().number == 976);
    CHECK(calls.front().signature.count == 976);
    CHECK(calls.back().number == 1999);
    CHECK(calls.back().axes == "dp");
    CHECK(describe(calls.back().signature, calls.back().where) ==
          "broadcast of 1999 fp32 from root 1 at train.cpp:7");
}

TEST_CASE("Journal: verbs are noted before the engine has them, and counted once it took them") {
    threads::launch(2, [](const shardkit::Communicator& world) {
        const shardkit::Communicator dp = split(world, 0, world.rank(), "dp", noted);
        const shardkit::Communicator alone = split(world, world.rank(), 0, "alone", noted);
        std::vector<float> values(8);
        const std::span<float> all(values);
        all_gather_in_place(dp, all, {}, noted);
        all_reduce(alone, ReduceOp::sum, std::span<const float>(all.first(2)), all.last(2), {}, noted);
        send_receive(dp, std::span<const float>(all).first(3), 1 - dp.rank(), all.last(3), 1 - dp.rank(), {}, noted);
        try {
            all_gather_in_place(dp, all.first(2 + 2 * dp.rank()), {}, noted);
        } catch (const CommError&) {}
        std::string verbs;
        for (const recorder::RecentCall& call : dp.label().journal.recorder().recent_calls()) {
            verbs += std::string(name(call.signature.verb)) + " " + std::to_string(call.signature.count) + " " +
                     call.axes + "; ";
        }
        const std::string refused = std::to_string(1 + world.rank());
        if (verbs != "split 0 world; split 0 world; all_gather 4 dp; receive 3 dp; send 3 dp; all_gather " + refused +
                         " dp; ") {
            throw std::runtime_error(verbs);
        }
        if (dp.traffic().total(Verb::all_gather).calls != 1) { throw std::runtime_error("a refused call counts"); }
    });
}

TEST_CASE("CallObserver: sees calls on their way there and back, and may leave them out") {
    threads::launch(2, [](const shardkit::Communicator& world) {
        Watcher watcher;
        engine::Journal& journal = world.label().journal;
        if (journal.observe(&watcher) != nullptr) { throw std::runtime_error("somebody watched already"); }
        std::vector<float> values{1, 2};
        const std::span<float> all(values);
        barrier(world, {});
        all_reduce_in_place(world, ReduceOp::sum, all, {});
        all_gather_in_place(world, all, {});
        send_receive(world, std::span<const float>(all).first(1), 1 - world.rank(), all.last(1), 1 - world.rank(),
                     {});
        if (journal.observe(nullptr) != &watcher) { throw std::runtime_error("nobody watched"); }
        barrier(world, {});
        const std::vector<std::string> expected{
            "before barrier over world 0",        "after barrier over world 0",
            "before all_reduce over world out 8", "before all_gather over world out 8",
            "after all_gather over world out 8",  "before receive over world out 4",
            "before send over world in 4",        "after send over world in 4",
            "after receive over world out 4"};
        if (watcher.seen != expected) { throw std::runtime_error("another order"); }
        if (values[0] != 1) { throw std::runtime_error("what was left out moved data"); }
        if (world.traffic().total(Verb::all_reduce).calls != 0) { throw std::runtime_error("and was counted"); }
    });
}

TEST_CASE("CallObserver: sees the verbs of a rank alone as well, which leave no other trace") {
    self::World world;
    const shardkit::Communicator comm(world);
    Watcher watcher;
    comm.label().journal.observe(&watcher);
    float one = 1;
    float two = 0;
    all_reduce(comm, ReduceOp::sum, std::span<const float>(&one, 1), std::span<float>(&two, 1), {});
    CHECK(two == 0);
    broadcast(comm, std::span<float>(&two, 1), 0, {});
    CHECK(watcher.seen == std::vector<std::string>{"before all_reduce over world in out 4",
                                                   "before broadcast over world out 4",
                                                   "after broadcast over world out 4"});
    CHECK(world.journal().recorder().recent_calls().empty());
}

}  // namespace journal_test
