// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>

#include "verb_checks.hpp"

namespace {

using namespace shardkit;
using namespace verb_checks;
using Comm = threads::Communicator;

}  // namespace

TEST_CASE("threads: split orders members by key, then by rank, for every colouring of four ranks") {
    for (std::size_t colouring = 0; colouring < 256; ++colouring) {  // two bits of colour per rank
        CAPTURE(colouring);
        const auto color_of = [&](std::size_t rank) { return (colouring >> (2 * rank)) & 3U; };
        const auto key_of = [](std::size_t rank) { return (rank * 3 + 1) % 2; };  // 1, 0, 1, 0
        CHECK_NOTHROW(threads::launch(4, [&](const Comm& world) {
            const std::size_t self = world.rank();
            std::size_t size = 0;
            std::size_t place = 0;
            for (std::size_t q = 0; q < 4; ++q) {
                if (color_of(q) != color_of(self)) { continue; }
                ++size;
                if (key_of(q) < key_of(self) || (key_of(q) == key_of(self) && q < self)) { ++place; }
            }
            const Comm part = world.split(color_of(self), key_of(self), "part");
            expect(part.size() == size, "size ", size, ", got ", part.size());
            expect(part.rank() == place, "rank ", place, ", got ", part.rank());
            expect(part.axes() == "part", "the name is kept");
            std::vector<std::uint64_t> members(size);
            members[place] = self;
            all_gather_in_place(part, std::span<std::uint64_t>(members), {});
            for (const std::uint64_t member : members) { expect(color_of(member) == color_of(self), "one colour"); }
        }));
    }
}

TEST_CASE("threads: communicators of several splits run at once and one inside the other") {
    threads::launch(8, [](const Comm& world) {
        const Comm rows = world.split(world.rank() / 4, world.rank() % 4, "tp");
        const Comm columns = world.split(world.rank() % 4, world.rank() / 4, "dp");
        const Comm pairs = rows.split(rows.rank() / 2, 0, "cp");
        const Comm reversed = world.split(0, 7 - world.rank(), "reversed");
        const Comm alone = world.split(world.rank(), 0, "alone");
        expect(reversed.rank() == 7 - world.rank() && alone.size() == 1, "shape of the splits");
        for (std::size_t round = 0; round < 20; ++round) {
            // The groups drift apart: each runs its own number of rounds.
            for (std::size_t i = 0; i <= world.rank() / 4; ++i) { check_all_reduce<float, float>(rows, 300, 1); }
            for (std::size_t i = 0; i <= world.rank() % 4; ++i) { check_all_gather<float>(columns, 70, 1); }
            check_reduce_scatter<bf16, float>(pairs, 33, 1);
            check_copies<double>(reversed, 5, 1);
            check_all_reduce<double, double>(alone, 40, 1);
        }
        barrier(world, {});
    });
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
        std::optional<Comm> half = world.split(world.rank() / 2, 0, "first").split(0, 0, "second");
        const Comm copy = *half;
        half.reset();
        expect(copy.axes() == "second" && copy.size() == 2, "the second split");
        check_all_reduce<float, float>(copy, 50, 1);
    });
}

TEST_CASE("threads: colors from 2^63 on are refused") {
    for (const std::size_t color : {std::size_t{1} << 63U, ~std::size_t{0}}) {
        CHECK_THROWS_AS(threads::launch(2, [&](const Comm& world) { world.split(color, 0, "x"); }),
                        std::invalid_argument);
    }
    CHECK_NOTHROW(threads::launch(
        2, [](const Comm& world) { world.split((std::size_t{1} << 63U) - 1, ~std::size_t{0}, "x"); }));
}
