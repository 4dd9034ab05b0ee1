// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/verbs/split.hpp>

#include "verb_suite.hpp"

namespace threads_split_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using Comm = shardkit::Communicator;

}  // namespace

TEST_CASE("threads: split orders members by key, then by rank, for every colouring of four ranks") {
    for (std::size_t colouring = 0; colouring < 256; ++colouring) {  // two bits of colour per rank
        CAPTURE(colouring);
        CHECK_NOTHROW(threads::launch(4, [&](const Comm& world) { split_orders_members(world, colouring); }));
    }
}

TEST_CASE("threads: communicators of several splits run at once and one inside the other") {
    threads::launch(8, [](const Comm& world) { splits_run_at_once(world, 20); });
}

TEST_CASE("threads: two names of one group are one group") {
    threads::launch(3, [](const Comm& world) {
        const Comm dp = world.named("dp");
        expect(dp.axes() == "dp" && world.axes() == "world", "names");
        for (int round = 0; round < 10; ++round) {
            barrier(round % 2 == 0 ? world : dp, {});
            check_all_reduce<float, float>(round % 3 == 0 ? dp : world, 100, 0);
        }
        // A rank may use the one name where its peer uses the other.
        check_all_gather<float>(world.rank() == 1 ? dp : world, 10, 0);
    });
}

TEST_CASE("threads: a communicator outlives the one it was split from, and copies are the same communicator") {
    threads::launch(4, [](const Comm& world) {
        std::optional<Comm> half = split(split(world, world.rank() / 2, 0, "first"), 0, 0, "second");
        const Comm copy = *half;
        half.reset();
        expect(copy.axes() == "second" && copy.size() == 2, "the second split");
        check_all_reduce<float, float>(copy, 50, 1);
    });
}

TEST_CASE("threads: colors from 2^63 on are refused") {
    for (const std::size_t color : {std::size_t{1} << 63U, ~std::size_t{0}}) {
        CHECK_THROWS_AS(threads::launch(2, [&](const Comm& world) { split(world, color, 0, "x"); }),
                        std::invalid_argument);
    }
    CHECK_NOTHROW(threads::launch(
        2, [](const Comm& world) { split(world, (std::size_t{1} << 63U) - 1, ~std::size_t{0}, "x"); }));
}

}  // namespace threads_split_test
