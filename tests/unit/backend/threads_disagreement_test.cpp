// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/verbs/split.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_disagreement_test {

namespace {

using namespace shardkit;
using namespace rank_checks;
using Comm = shardkit::Communicator;
using threads::launch_and_collect;
using verb_oracle::Guarded;

/// Buffers that a refused call must leave alone.
struct Buffers {
    std::vector<double> doubles = std::vector<double>(24, 1.0);
    std::vector<float> floats = std::vector<float>(24, 1.0F);
    std::vector<bf16> halves = std::vector<bf16>(24, bf16(1.0F));
    Guarded<float> out{24, 1};
    Guarded<double> wide_out{24, 1};

    std::span<const float> in() const { return floats; }
};

using Act = std::function<void(const Comm&, Buffers&)>;

/// Rank `odd` does `other` while the rest do `usual`: all must be told, by a CommError that names both.
void check_told(const Act& usual, const Act& other, const std::string& usual_text, const std::string& other_text) {
    constexpr std::size_t ranks = 3;
    for (std::size_t odd = 0; odd < ranks; ++odd) {
        const auto errors = launch_and_collect(ranks, [&](const Comm& world) {
            barrier(world, {});
            Buffers buffers;
            try {
                (world.rank() == odd ? other : usual)(world, buffers);
            } catch (...) {
                expect(buffers.out.untouched() && buffers.wide_out.untouched(), "nothing written");
                throw;
            }
        });
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const Outcome seen = outcome(errors[rank]);
            CAPTURE(odd);
            CAPTURE(rank);
            CAPTURE(seen.text);
            CHECK(seen.kind == Kind::comm);
            CHECK(contains(seen.text, "the ranks disagree in call 1: rank 0 calls "));
            const std::size_t second = odd == 0 ? 1 : odd;  // the lowest rank that differs from rank 0
            CHECK(contains(seen.text, detail::concat(", rank ", second, " calls ")));
            CHECK(contains(seen.text, usual_text + " at "));
            CHECK(contains(seen.text, other_text + " at "));
            CHECK(contains(seen.text, "threads_disagreement_test.cpp:"));
        }
    }
}

const Act reduce_24 = [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::sum, b.in(), b.out.span(), {}); };
const std::string reduce_24_text = "all_reduce sum of 24 fp32";

}  // namespace

TEST_CASE("threads: ranks that call different verbs are told which") {
    check_told(
        reduce_24, [](const Comm& c, Buffers&) { barrier(c, {}); }, reduce_24_text, "barrier");
    check_told(
        reduce_24, [](const Comm& c, Buffers&) { split(c, 0, 0, "x"); }, reduce_24_text, "split");
    check_told(
        reduce_24, [](const Comm& c, Buffers& b) { all_gather(c, b.in().first(8), b.out.span(), {}); },
        reduce_24_text, "all_gather of 8 fp32");
    check_told(
        reduce_24, [](const Comm& c, Buffers& b) { all_to_all(c, b.in(), b.out.span(), {}); }, reduce_24_text,
        "all_to_all of 24 fp32");
    check_told(
        reduce_24,
        [](const Comm& c, Buffers& b) { reduce_scatter(c, ReduceOp::sum, b.in(), b.out.span().first(8), {}); },
        reduce_24_text, "reduce_scatter sum of 24 fp32");
}

TEST_CASE("threads: ranks that give different counts are told which") {
    check_told(
        reduce_24,
        [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::sum, b.in().first(23), b.out.span().first(23), {}); },
        reduce_24_text, "all_reduce sum of 23 fp32");
    check_told([](const Comm& c, Buffers& b) { all_gather(c, b.in().first(8), b.out.span(), {}); },
               [](const Comm& c, Buffers& b) { all_gather(c, b.in().first(0), b.out.span().first(0), {}); },
               "all_gather of 8 fp32", "all_gather of 0 fp32");
}

TEST_CASE("threads: ranks that give different types are told which") {
    check_told(
        reduce_24,
        [](const Comm& c, Buffers& b) {
            all_reduce(c, ReduceOp::sum, std::span<const bf16>(b.halves), b.out.span(), {});
        },
        reduce_24_text, "all_reduce sum of 24 bf16 into fp32");
    check_told(
        reduce_24, [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::sum, b.in(), b.wide_out.span(), {}); },
        reduce_24_text, "all_reduce sum of 24 fp32 into fp64");
}

TEST_CASE("threads: ranks that give different operations or roots are told which") {
    check_told(
        reduce_24, [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::max, b.in(), b.out.span(), {}); },
        reduce_24_text, "all_reduce max of 24 fp32");
    check_told([](const Comm& c, Buffers& b) { broadcast(c, b.out.span(), 0, {}); },
               [](const Comm& c, Buffers& b) { broadcast(c, b.out.span(), 2, {}); },
               "broadcast of 24 fp32 from root 0", "broadcast of 24 fp32 from root 2");
}

TEST_CASE("threads: ranks whose counts of an uneven all-to-all contradict each other are told, and nothing moves") {
    // What each sends in all is alike, so that no sum shows it.
    const auto check = [](std::size_t odd, const std::array<std::size_t, 3>& odd_sends, const std::string& sender,
                          const std::string& receiver) {
        const auto errors = launch_and_collect(3, [&](const Comm& world) {
            Buffers b;
            const std::array<std::size_t, 3> eights{8, 8, 8};
            try {
                all_to_all_uneven(world, b.in(), world.rank() == odd ? odd_sends : eights, b.out.span(), eights, {});
            } catch (...) {
                expect(b.out.untouched(), "nothing written");
                throw;
            }
        });
        for (const auto& error : errors) {
            const Outcome seen = outcome(error);
            CAPTURE(seen.text);
            CHECK(seen.kind == Kind::comm);
            CHECK(contains(seen.text, "the ranks disagree in call 0: " + sender + " at "));
            CHECK(contains(seen.text, ", " + receiver + " at "));
        }
    };
    const std::string verb = " calls all_to_all_uneven of fp32 with ";
    check(2, {9, 7, 8}, "rank 2" + verb + "9 to rank 0", "rank 0" + verb + "8 from rank 2");
    check(1, {16, 8, 0}, "rank 1" + verb + "16 to rank 0", "rank 0" + verb + "8 from rank 1");
    check(0, {8, 0, 16}, "rank 0" + verb + "0 to rank 1", "rank 1" + verb + "8 from rank 0");
}

TEST_CASE("threads: ranks that call the same verbs in different orders are told which") {
    check_told(
        [](const Comm& c, Buffers& b) {
            all_gather(c, b.in().first(8), b.out.span(), {});
            barrier(c, {});
        },
        [](const Comm& c, Buffers& b) {
            barrier(c, {});
            all_gather(c, b.in().first(8), b.out.span(), {});
        },
        "all_gather of 8 fp32", "barrier");
}

TEST_CASE("threads: a group stays usable after a disagreement that every rank survived") {
    threads::launch(3, [](const Comm& world) {
        for (int round = 0; round < 3; ++round) {
            Buffers b;
            try {
                if (world.rank() == 1) { barrier(world, {}); }
                if (world.rank() != 1) { reduce_24(world, b); }
                expect(false, "an error");
            } catch (const CommError&) { verb_checks::check_all_reduce<float, float>(world, 100, 1); }
        }
    });
}

TEST_CASE("threads: sender and receiver that disagree are both told, and nothing is received") {
    const auto exchange = [](auto sent_type, std::size_t sent, auto received_type, std::size_t received) {
        using Sent = decltype(sent_type);
        using Received = decltype(received_type);
        return launch_and_collect(2, [&](const Comm& world) {
            if (world.rank() == 0) {
                const std::vector<Sent> values(sent);
                send(world, std::span<const Sent>(values), 1, {});
            } else {
                Guarded<Received> values(received, 1);
                try {
                    receive(world, values.span(), 0, {});
                } catch (...) {
                    expect(values.untouched(), "nothing received");
                    throw;
                }
            }
        });
    };
    const auto check = [](const std::vector<std::exception_ptr>& errors, const std::string& sent,
                          const std::string& expected) {
        for (const auto& error : errors) {
            const Outcome seen = outcome(error);
            CAPTURE(seen.text);
            CHECK(seen.kind == Kind::comm);
            CHECK(contains(seen.text, "rank 0 calls send of " + sent + " at "));
            CHECK(contains(seen.text, "rank 1 calls receive of " + expected + " at "));
        }
    };
    check(exchange(1.0F, 10, 1.0F, 11), "10 fp32", "11 fp32");
    check(exchange(1.0F, 10, std::int32_t{1}, 10), "10 fp32", "10 int32");
    check(exchange(1.0, 0, 1.0, 1), "0 fp64", "1 fp64");
}

}  // namespace threads_disagreement_test
