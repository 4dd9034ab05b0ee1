// SPDX-License-Identifier: Apache-2.0
// Inputs that travel with their calls: nobody waits until the peers have read them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>

#include "rank_checks.hpp"
#include "verb_suite.hpp"

namespace threads_carried_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using rank_checks::expect;
using Comm = shardkit::Communicator;
using Words = std::array<std::uint64_t, 3>;

constexpr std::size_t limit = threads::detail::carried_bytes;
constexpr std::size_t rank_counts[] = {1, 2, 3, 5};
constexpr std::size_t sizes_around_it[] = {limit - 1, limit, limit + 1};
constexpr std::size_t offsets[] = {0, 1};

/// What a rank gives in a call; all are different.
std::uint64_t given(std::size_t rank, std::size_t call) { return 1000 * call + rank + 1; }

void check_repeated_calls(const Comm& world, std::size_t calls) {
    const std::size_t n = world.size();
    Words mine{};
    Words sum{};
    std::vector<std::uint64_t> all(n);
    for (std::size_t call = 0; call < calls; ++call) {
        // Each rank in turn is late: the others have their results and are in the next call already.
        if (call % n == world.rank()) { std::this_thread::yield(); }
        mine.fill(given(world.rank(), call));
        all_reduce(world, ReduceOp::sum, std::span<const std::uint64_t>(mine), std::span<std::uint64_t>(sum), {});
        mine.fill(0);  // the input is the caller's again
        all_gather(world, std::span<const std::uint64_t>(sum).first(1), std::span<std::uint64_t>(all), {});
        const std::uint64_t expected = 1000 * call * n + n * (n + 1) / 2;
        expect(sum == Words{expected, expected, expected}, "call ", call, ": ", expected, ", got ", sum[0]);
        for (const std::uint64_t of_peer : all) { expect(of_peer == expected, "the peer's sum of call ", call); }
    }
}

}  // namespace

TEST_CASE("threads: calls around the largest input that travels with its call give the serial result") {
    for (const std::size_t ranks : rank_counts) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) {
            const std::size_t n = world.size();
            for (const std::size_t bytes : sizes_around_it) {
                for (const std::size_t offset : offsets) {
                    check_all_gather<std::uint8_t>(world, bytes, offset);
                    check_all_reduce<std::uint8_t, std::uint8_t>(world, bytes, offset);
                    check_all_reduce<bf16, double>(world, bytes / 2, offset);
                    check_all_reduce<double, bf16>(world, (bytes + 7) / 8, offset);
                    check_reduce_scatter<std::uint8_t, std::uint8_t>(world, (bytes + n - 1) / n, offset);
                    check_copies<std::uint8_t>(world, (bytes + n - 1) / n, offset);
                }
            }
        }));
    }
}

TEST_CASE("threads: an input that travelled with its call is gone only when all have read it") {
    const std::size_t calls = rank_checks::sanitized ? 300 : 3000;
    for (const threads::WaitMode waiting : {threads::WaitMode::block, threads::WaitMode::spin_briefly}) {
        for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}, std::size_t{8}}) {
            CAPTURE(ranks);
            CHECK_NOTHROW(threads::launch(ranks, [&](const Comm& world) { check_repeated_calls(world, calls); },
                                          {.waiting = waiting}));
        }
    }
}

TEST_CASE("threads: calls of which some travel and some do not disagree on every rank, and the group stays usable") {
    threads::launch(3, [](const Comm& world) {
        std::array<float, limit / sizeof(float) + 1> values{};
        for (int round = 0; round < 4; ++round) {
            const std::size_t count = world.rank() == 1 ? 144 : 145;
            try {
                all_reduce_in_place(world, ReduceOp::sum, std::span<float>(values).first(count), {});
                expect(false, "an error");
            } catch (const CommError&) {
                check_all_reduce<float, float>(world, 144 + static_cast<std::size_t>(round) % 2, 0);
            }
        }
    });
}

TEST_CASE("threads: what an uneven all-to-all sends may change as soon as it returns") {
    threads::launch(2, [](const shardkit::Communicator& world) {
        constexpr std::size_t large = std::size_t{4} << 20U;  // copied for long enough to be overwritten meanwhile
        const bool sends = world.rank() == 0;
        std::vector<float> sent(sends ? large : 0, 1.0F);
        std::vector<float> received(sends ? 0 : large);
        const std::array<std::size_t, 2> to{0, sent.size()};
        const std::array<std::size_t, 2> from{received.size(), 0};
        all_to_all_uneven(world, sent, to, received, from);
        std::ranges::fill(sent, -1.0F);
        rank_checks::expect(std::ranges::count(received, 1.0F) == static_cast<std::ptrdiff_t>(received.size()),
                            "what was sent");
    });
}

}  // namespace threads_carried_test
