// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/verbs/all_gather.hpp>

#include "test_size.hpp"
#include "verb_suite.hpp"

namespace threads_verbs_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using Comm = shardkit::Communicator;

std::vector<std::size_t> rank_counts() {
    if (test_size::reduced()) { return {1, 2, 3, 8}; }
    return {1, 2, 3, 4, 5, 7, 8};
}

}  // namespace

// Of a type of registers, one that is converted, and one of odd addresses.
TEST_CASE_TEMPLATE("threads: every verb, rank count and size gives the serial result bit for bit", T, float, bf16,
                   std::uint8_t) {
    for (const std::size_t ranks : rank_counts()) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) { every_verb<T>(world); }));
    }
}

TEST_CASE("threads: reductions of every other element type give the serial result bit for bit") {
    for (const std::size_t ranks : rank_counts()) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) {
            reductions<double, double>(world);
            reductions<fp16, fp16>(world);
            reductions<std::int64_t, std::int64_t>(world);
            reductions<std::int32_t, std::int32_t>(world);
        }));
    }
}

TEST_CASE("threads: results too large for the caches are written past them, with the same bits") {
    const auto on_rank = []<class T>(const Comm& world, T) {
        constexpr std::size_t count = (std::size_t{28} << 19U) / sizeof(T) + 17;
        static_assert(2 * 2 * count * sizeof(T) > host::detail::streaming_bytes);
        check_all_reduce<T, T>(world, count, 1);
        check_all_gather<T>(world, count / 2, 3);
        check_reduce_scatter<T, T>(world, count, 1);
        constexpr std::size_t of_doubles = (std::size_t{7} << 18U) + 8;
        check_reduce_scatter<bf16, double>(world, of_doubles, 1);
        check_copies<double>(world, of_doubles, 1);
    };
    // Of slow builds fewer elements of as many bytes, and one way to wait.
    if (test_size::reduced()) {
        CHECK_NOTHROW(threads::launch(2, [&](const Comm& world) { on_rank(world, 1.0); }));
        return;
    }
    for (const auto waiting : {threads::WaitMode::spin_briefly, threads::WaitMode::block}) {
        CHECK_NOTHROW(threads::launch(2, [&](const Comm& world) { on_rank(world, 1.0F); }, {.waiting = waiting}));
    }
}

TEST_CASE("threads: a large all-gather whose ranks have their shards in place or not, at addresses of their own") {
    const auto gather = [](const Comm& world) {
        constexpr std::size_t k = (std::size_t{3} << 18U) + 5;
        static_assert(3 * 3 * k * sizeof(float) > host::detail::streaming_bytes);
        const std::size_t rank = world.rank();
        std::vector<float> memory(3 * k + 3, -1.0F);
        std::vector<float> apart(k);
        const std::span<float> full = std::span(memory).subspan(rank, 3 * k);
        const std::span<float> shard = rank == 1 ? std::span(apart) : full.subspan(rank * k, k);
        std::iota(shard.begin(), shard.end(), static_cast<float>(rank));
        all_gather(world, std::span<const float>(shard), full, {});
        std::size_t wrong = 0;
        for (std::size_t q = 0; q < 3; ++q) {
            for (std::size_t i = 0; i < k; ++i) { wrong += full[q * k + i] != static_cast<float>(q + i) ? 1U : 0U; }
        }
        CHECK(wrong == 0);
        CHECK(std::count(memory.begin(), memory.end(), -1.0F) == 3);
    };
    for (const auto waiting : {threads::WaitMode::automatic, threads::WaitMode::block}) {
        threads::launch(3, gather, {.waiting = waiting});
    }
}

TEST_CASE("threads: unsigned words reduce modulo their size") {
    CHECK_NOTHROW(threads::launch(3, [](const Comm& world) { unsigned_words(world); }));
}

TEST_CASE("threads: reductions into another type add in that type's arithmetic and round once") {
    for (const std::size_t ranks : rank_counts()) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) { reductions_into_another_type(world); }));
    }
}

TEST_CASE("threads: sixteen-bit sums are rounded once, not at every rank") {
    threads::launch(9, [](const Comm& world) { sixteen_bit_sums_are_rounded_once(world); });
}

TEST_CASE("threads: a NaN of any rank survives every reduction") {
    threads::launch(4, [](const Comm& world) { a_nan_survives_every_reduction(world); });
}

TEST_CASE("threads: results do not depend on the run or on how ranks wait") {
    const auto bits_of = [](threads::WaitMode waiting) {
        std::vector<float> result(5000);
        threads::launch(5,
                        [&](const Comm& world) {
                            Guarded<float> values = input<float>(world.rank(), result.size(), 1);
                            for (int repeat = 0; repeat < 3; ++repeat) {
                                all_reduce_in_place(world, ReduceOp::sum, values.span(), {});
                            }
                            if (world.rank() == 2) {
                                std::copy(values.span().begin(), values.span().end(), result.begin());
                            }
                        },
                        {.waiting = waiting});
        return result;
    };
    const std::vector<float> first = bits_of(threads::WaitMode::block);
    for (int run = 0; run < 5; ++run) {
        CHECK(bits_of(threads::WaitMode::block) == first);
        CHECK(bits_of(threads::WaitMode::spin_briefly) == first);
        CHECK(bits_of(threads::WaitMode::automatic) == first);
    }
}

TEST_CASE("threads: sizes that do not fit are refused before anything is communicated") {
    threads::launch(2, [](const Comm& world) { sizes_that_do_not_fit_are_refused(world); });
}

}  // namespace threads_verbs_test
