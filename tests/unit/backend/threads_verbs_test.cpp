// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/all_gather.hpp>

#include "test_size.hpp"
#include "verb_suite.hpp"

namespace threads_verbs_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using Comm = threads::Communicator;

constexpr std::size_t rank_counts[] = {1, 2, 3, 4, 5, 7, 8};

}  // namespace

TEST_CASE_TEMPLATE("threads: every verb, rank count and size gives the serial result bit for bit", T, double, float,
                   bf16, fp16, std::int64_t, std::int32_t, std::uint8_t) {
    for (const std::size_t ranks : rank_counts) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) { every_verb<T>(world); }));
    }
}

TEST_CASE(
    "threads: results too large for the caches are written past them, with the same bits, by each or in pieces") {
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

namespace {

/// A round in which only rank 1 of three has a processor.
struct AloneRound {
    static constexpr std::size_t ranks = 3;
    std::vector<std::vector<float>>& inputs;
    std::vector<std::vector<float>>& outputs;
    std::size_t& taken;

    static std::size_t size() { return ranks; }
    static std::size_t rank() { return 1; }
    static bool carried() { return false; }
    static bool shows_outputs() { return true; }
    static bool in_place(std::size_t /*q*/) { return false; }
    static bool takes_pieces() { return true; }
    template <class Work>
    void do_pieces(std::size_t parts, std::size_t pieces, Work work) const {
        for (; taken < parts * pieces; ++taken) { work((taken / pieces + 1) % parts, taken % pieces); }
    }
    template <class T>
    const T* input(std::size_t q) const {
        return inputs[q].data();
    }
    template <class T>
    T* output(std::size_t q) const {
        return outputs[q].data();
    }
};

/// Buffers of three ranks and what is in them; `call(round)` of rank 1 is to leave expected(rank, i) in all outputs.
template <class Call, class Expected>
void check_alone(std::size_t in, std::size_t out, Call call, Expected expected) {
    std::vector<std::vector<float>> inputs(AloneRound::ranks, std::vector<float>(in));
    std::vector<std::vector<float>> outputs(AloneRound::ranks, std::vector<float>(out, -1.0F));
    for (std::size_t q = 0; q < AloneRound::ranks; ++q) {
        std::iota(inputs[q].begin(), inputs[q].end(), static_cast<float>(q));
    }
    std::size_t taken = 0;
    call(AloneRound{inputs, outputs, taken});
    CHECK(taken > 1);
    std::size_t wrong = 0;
    for (std::size_t q = 0; q < AloneRound::ranks; ++q) {
        for (std::size_t i = 0; i < out; ++i) { wrong += outputs[q][i] != expected(q, i) ? 1U : 0U; }
    }
    CHECK(wrong == 0);
}

/// Of calls of so many elements for each rank.
void check_alone(std::size_t k) {
    const auto sum = [](std::size_t i) { return static_cast<float>(3 * i + 3); };
    check_alone(
        3 * k, k,
        [](const AloneRound& round) {
            shared::detail::reduce_scatter(round, ReduceOp::sum, std::span<const float>(round.inputs[1]),
                                           round.outputs[1].data());
        },
        [&](std::size_t q, std::size_t i) { return sum(q * k + i); });
    check_alone(
        3 * k, 3 * k,
        [&](const AloneRound& round) {
            shared::detail::all_reduce<float>(round, ReduceOp::sum, 3 * k, round.outputs[1].data());
        },
        [&](std::size_t, std::size_t i) { return sum(i); });
    check_alone(
        k, 3 * k,
        [](const AloneRound& round) {
            shared::detail::all_gather(round, round.inputs[1].data(), std::span<float>(round.outputs[1]));
        },
        [&](std::size_t, std::size_t i) { return static_cast<float>(i / k + i % k); });
    check_alone(
        3 * k, 3 * k,
        [](const AloneRound& round) {
            std::copy(round.inputs[2].begin(), round.inputs[2].end(), round.outputs[2].begin());
            shared::detail::broadcast(round, std::span<float>(round.outputs[1]), 2);
        },
        [](std::size_t, std::size_t i) { return static_cast<float>(i + 2); });
}

}  // namespace

TEST_CASE("threads: of ranks that take turns, one that has a processor does the work of all") {
    constexpr std::size_t k = (std::size_t{3} << 18U) + 5;
    static_assert(3 * 3 * k * sizeof(float) > host::detail::streaming_bytes);
    check_alone(k);
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
    CHECK_NOTHROW(threads::launch(3, [](const Comm& world) { lists(world); }));
}

TEST_CASE("threads: reductions into another type add in that type's arithmetic and round once") {
    for (const std::size_t ranks : rank_counts) {
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
