// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "../thrown_message.hpp"
#include "faults/faulty.hpp"

namespace faulty_test {

namespace {

namespace sk = shardkit;
using namespace std::chrono_literals;
using planted::Fault;
using planted::FaultKind;
using planted::FaultPlan;
using planted::Faults;
/// What each rank ended with, without the lines.
template <class F>
std::vector<std::string> ends(std::size_t ranks, Faults& faults, const F& f,
                              const sk::threads::LaunchOptions& options = {}) {
    std::vector<std::string> texts(ranks);
    const auto errors = sk::threads::launch_and_collect(
        ranks,
        [&](auto& world) {
            sk::MeshRank<sk::DeviceMesh<sk::dynamic>> rank{
                sk::DeviceMesh{ranks}, world, {}, {{}, world.communication_stream(), world.reduction_stream()}};
            planted::with_faults(rank, faults, f);
        },
        options);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (errors[rank] == nullptr) { continue; }
        try {
            std::rethrow_exception(errors[rank]);
        } catch (const std::exception& error) { texts[rank] = error.what(); }
    }
    return texts;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr std::size_t verbs = 8;
/// Makes each verb that delivers something once, on equal values; returns what rank 1 got.
template <class Rank>
std::array<std::vector<std::uint8_t>, verbs> deliveries(Rank& rank) {
    const auto& world = rank.world();
    const std::size_t n = world.size();
    std::array<std::vector<std::uint8_t>, verbs> got;
    const std::vector<std::uint8_t> one(2, 1);
    std::vector<std::uint8_t> all(2 * n, 1);
    for (auto& each : got) { each.resize(2); }
    got[0].resize(2 * n);
    sk::all_gather(world, one, got[0]);
    sk::reduce_scatter(world, sk::ReduceOp::max, all, got[1]);
    sk::all_reduce(world, sk::ReduceOp::max, one, got[2]);
    got[3] = one;
    sk::broadcast(world, got[3], 0);
    got[4].resize(2 * n);
    sk::all_to_all(world, all, got[4]);
    const std::vector<std::size_t> counts(n, 2);
    got[5].resize(2 * n);
    sk::all_to_all_uneven(world, all, counts, got[5], counts);
    sk::send_receive(world, one, (rank.rank() + 1) % n, got[6], (rank.rank() + n - 1) % n);
    if (rank.rank() == 0) {
        sk::send(world, one, 1);
        got[7] = one;
    } else if (rank.rank() == 1) {
        sk::receive(world, got[7], 0);
    } else {
        got[7] = one;
    }
    return got;
}

}  // namespace

TEST_CASE("testing: a plan is read as it is written, and other texts are refused") {
    const FaultPlan plan{
        {1, FaultKind::error, 17, 0}, {0, FaultKind::out_of_memory, 3, 0}, {2, FaultKind::delay, 0, 9}};
    CHECK(planted::text_of(plan) == "1:error:17:0 0:out_of_memory:3:0 2:delay:0:9");
    CHECK(planted::plan_of(planted::text_of(plan)) == plan);
    CHECK(planted::plan_of("").empty());
    for (const char* const wrong :
         {"1", "1:error", "1:error:2", "1:errors:2:3", "1:error:2:3x", "-1:error:2:3", " "}) {
        CAPTURE(wrong);
        CHECK(contains(thrown_message<std::invalid_argument>([&] { planted::plan_of(wrong); }),
                       "expected rank:kind:at:value"));
    }
}

TEST_CASE("testing: a seed gives one plan, and seeds give every kind, rank and place") {
    const planted::FaultChoice choice{.ranks = 3, .calls = 5, .buffers = 4, .faults = 2, .longest_delay = 7};
    // splitmix64 from seed 1, worked out apart from the library.
    CHECK(planted::text_of(planted::plan_of(1, choice)) == planted::text_of(planted::plan_of(1, choice)));
    std::array<std::size_t, 3> ranks{};
    std::array<std::size_t, 7> kinds{};
    std::array<std::size_t, 5> places{};
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const FaultPlan plan = planted::plan_of(seed, choice);
        REQUIRE(plan.size() == 2);
        CHECK(planted::plan_of(planted::text_of(plan)) == plan);
        for (const Fault& fault : plan) {
            ++ranks.at(fault.rank);
            ++kinds.at(static_cast<std::size_t>(fault.kind));
            ++places.at(static_cast<std::size_t>(fault.at));
            if (fault.kind == FaultKind::out_of_memory) { CHECK(fault.at < 4); }
            if (fault.kind == FaultKind::delay) { CHECK((fault.value >= 1 && fault.value <= 7)); }
        }
    }
    for (const std::size_t count : ranks) { CHECK(count > 550); }
    for (const std::size_t count : places) { CHECK(count > 300); }
    for (const FaultKind kind : choice.kinds) { CHECK(kinds.at(static_cast<std::size_t>(kind)) > 300); }
    CHECK(kinds.at(static_cast<std::size_t>(FaultKind::kill)) == 0);  // not asked for
    CHECK(contains(thrown_message<std::invalid_argument>([] { planted::plan_of(1, {.ranks = 0}); }),
                   "FaultChoice: 0 ranks, 1 calls"));
}

TEST_CASE("testing: without a fault nothing changes, and calls and buffers are counted") {
    Faults faults;
    const auto texts = ends(3, faults, [](auto& rank) {
        for (const auto& got : deliveries(rank)) {
            for (const std::uint8_t value : got) { CHECK(value == 1); }
        }
        const auto buffer = rank.template buffer<float>(4);
        CHECK(buffer.size() == 4);
    });
    for (const std::string& text : texts) { CHECK(text == ""); }
    CHECK(faults.struck().empty());
    CHECK(faults.most().calls == 8);
    CHECK(faults.most().buffers == 1);
}

TEST_CASE("testing: wrong data is one bit of what one call delivers to one rank, whatever the verb and the stream") {
    for (const auto overlap : {sk::threads::Overlap::none, sk::threads::Overlap::threads}) {
        for (std::size_t verb = 0; verb < verbs; ++verb) {
            CAPTURE(verb);
            Faults faults({{1, FaultKind::wrong_data, verb, 13}});
            const auto texts = ends(3, faults,
                                    [&](auto& rank) {
                                        const auto got = deliveries(rank);
                                        std::size_t wrong = 0;
                                        for (std::size_t v = 0; v < verbs; ++v) {
                                            for (std::size_t i = 0; i < got[v].size(); ++i) {
                                                const bool flipped = rank.rank() == 1 && v == verb && i == 1;
                                                CHECK(got[v][i] == (flipped ? 1 ^ 1 << 5 : 1));
                                                wrong += flipped ? 1 : 0;
                                            }
                                        }
                                        CHECK(wrong == (rank.rank() == 1 ? 1 : 0));
                                    },
                                    {.overlap = overlap});
            for (const std::string& text : texts) { CHECK(text == ""); }
            REQUIRE(faults.struck().size() == 1);
            CHECK(contains(faults.struck()[0].what, "rank 1: wrong_data in call " + std::to_string(verb) + ", "));
        }
    }
    // Behind what its stream does: the flip comes after the gather that a thread makes later.
    Faults faults({{0, FaultKind::wrong_data, 0, 0}});
    ends(2, faults,
         [](auto& rank) {
             std::vector<std::uint8_t> full(2);
             full[rank.rank()] = 4;
             sk::all_gather_in_place(rank.world(), full, rank.communication_stream());
             rank.communication_stream().synchronize();
             CHECK(full == std::vector<std::uint8_t>{static_cast<std::uint8_t>(rank.rank() == 0 ? 5 : 4), 4});
         },
         {.overlap = sk::threads::Overlap::threads});
    CHECK(faults.struck().size() == 1);
}

TEST_CASE("testing: wrong data waits for a call that delivers something") {
    Faults faults({{0, FaultKind::wrong_data, 0, 0}});
    ends(2, faults, [](auto& rank) {
        const auto all = sk::split(rank.world(), 0, rank.rank(), "all");
        sk::barrier(all);
        std::vector<float> none;
        sk::all_reduce_in_place(all, sk::ReduceOp::sum, none);
        std::vector<std::uint8_t> one(1, 2);
        sk::all_reduce_in_place(all.named("others"), sk::ReduceOp::max, one);
        CHECK(one[0] == (rank.rank() == 0 ? 3 : 2));
    });
    REQUIRE(faults.struck().size() == 1);
    CHECK(contains(faults.struck()[0].what, "call 3, all_reduce max of 1 uint8"));
}

TEST_CASE("testing: an error, a rank that leaves, one that hangs and one without memory are told on every rank") {
    const auto work = [](auto& rank) {
        for (int i = 0; i < 4; ++i) {
            const auto buffer = rank.template buffer<float>(4);
            sk::barrier(rank.world());
        }
    };
    {
        Faults faults({{1, FaultKind::error, 2, 0}});
        const auto texts = ends(3, faults, work);
        CHECK(contains(texts[1], "planted: rank 1: error after call 2, barrier at "));
        CHECK(contains(texts[0], "rank 1 failed: planted: rank 1: error after call 2"));
        CHECK(contains(texts[2], "rank 1 failed: planted: rank 1: error after call 2"));
    }
    {
        Faults faults({{1, FaultKind::leave, 2, 0}});
        const auto texts = ends(3, faults, work);
        CHECK(texts[1] == "");
        CHECK(contains(texts[0], "rank 1 returned before rank "));
        CHECK(contains(texts[2], "rank 1 returned before rank "));
    }
    {
        Faults faults({{1, FaultKind::hang, 2, 0}, {2, FaultKind::hang, 3, 0}});
        const auto texts = ends(3, faults, work, {.timeout = 200ms});
        CHECK(texts[1] == "");
        CAPTURE(texts[0]);
        CHECK(contains(texts[0], "rank 1 has not entered barrier"));
    }
    {
        Faults faults({{1, FaultKind::out_of_memory, 2, 0}});
        const auto texts = ends(3, faults, work);
        CHECK(texts[1] == "std::bad_alloc");
        CHECK(contains(texts[0], "rank 1 failed: std::bad_alloc"));
        REQUIRE(faults.struck().size() == 1);
        CHECK(faults.struck()[0].what == "rank 1: out_of_memory in buffer 2 of 16 bytes");
        CHECK(faults.struck()[0].fault == faults.plan()[0]);
    }
}

TEST_CASE("testing: a delay is waited for, and a rank that left makes no call where its trainer goes on") {
    Faults faults({{0, FaultKind::delay, 0, 30}, {1, FaultKind::leave, 2, 0}});
    const auto texts = ends(2, faults, [](auto& rank) {
        const auto begin = std::chrono::steady_clock::now();
        sk::barrier(rank.world());
        CHECK(std::chrono::steady_clock::now() - begin >= (rank.rank() == 0 ? 30ms : 0ms));
        sk::barrier(rank.world());
        try {
            sk::barrier(rank.world());
            CHECK(rank.rank() == 0);
        } catch (const std::exception&) { throw; } catch (...) {
        }
        sk::barrier(rank.world());
        FAIL("a call after the rank has left");
    });
    CHECK(texts[1] == "");
    CHECK(contains(texts[0], "rank 1 returned before rank 0's barrier"));
    CHECK(faults.struck().size() == 2);
}

TEST_CASE("testing: one rank alone, and an engine whose streams run late") {
    Faults faults({{0, FaultKind::wrong_data, 0, 8}});
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        planted::with_faults(rank, faults, [](auto& faulty) {
            std::vector<std::uint8_t> from{1, 2};
            std::vector<std::uint8_t> to(2);
            sk::all_gather(faulty.world(), from, to);
            CHECK(to == std::vector<std::uint8_t>{1, 3});
        });
    });
    CHECK(faults.struck().size() == 1);
}

}  // namespace faulty_test
