// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>

#include "verb_checks.hpp"

namespace {

using namespace shardkit;
using namespace verb_checks;
using Comm = threads::Communicator;

constexpr std::size_t rank_counts[] = {1, 2, 3, 4, 5, 7, 8};

std::vector<std::size_t> sizes() {
    if constexpr (rank_checks::sanitized) { return {0, 1, 2, 3, 17, 1000, 1027}; }
    return {0, 1, 2, 3, 17, 1000, 100003};
}

/// Small sizes are per rank; a large one is divided among the ranks.
std::size_t per_rank(std::size_t size, std::size_t ranks) { return size > 1000 ? size / ranks : size; }

template <class T>
void check_every_verb(const Comm& comm) {
    for (const std::size_t size : sizes()) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
            const std::size_t k = per_rank(size, comm.size());
            check_all_gather<T>(comm, k, offset);
            check_reduce_scatter<T, T>(comm, k, offset);
            check_all_reduce<T, T>(comm, size, offset);
            check_copies<T>(comm, k, offset);
            check_send_and_receive<T>(comm, k);
        }
    }
}

template <class In, class Out>
void check_reductions(const Comm& comm) {
    for (const std::size_t size : sizes()) {
        check_reduce_scatter<In, Out>(comm, per_rank(size, comm.size()), 1);
        check_all_reduce<In, Out>(comm, size, 1);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("threads: every verb, rank count and size gives the serial result bit for bit", T, double, float,
                   bf16, fp16, std::int64_t, std::int32_t, std::uint8_t) {
    for (const std::size_t ranks : rank_counts) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) { check_every_verb<T>(world); }));
    }
}

TEST_CASE("threads: results too large for the caches are written past them, with the same bits") {
    CHECK_NOTHROW(threads::launch(2, [](const Comm& world) {
        constexpr std::size_t count = (std::size_t{7} << 19U) + 17;
        static_assert(2 * 2 * count * sizeof(float) > host::streaming_bytes);
        check_all_reduce<float, float>(world, count, 1);
        check_all_gather<float>(world, count / 2, 3);
        check_reduce_scatter<bf16, double>(world, count / 2, 1);
    }));
}

TEST_CASE("threads: unsigned words reduce modulo their size") {
    CHECK_NOTHROW(threads::launch(3, [](const Comm& world) {
        check_reductions<std::uint64_t, std::uint64_t>(world);
        check_reductions<std::uint32_t, std::uint32_t>(world);
    }));
}

TEST_CASE("threads: reductions into another type add in that type's arithmetic and round once") {
    for (const std::size_t ranks : rank_counts) {
        CAPTURE(ranks);
        CHECK_NOTHROW(threads::launch(ranks, [](const Comm& world) {
            check_reductions<bf16, float>(world);
            check_reductions<fp16, float>(world);
            check_reductions<bf16, double>(world);
            check_reductions<float, double>(world);
            check_reductions<double, float>(world);
            check_reductions<float, bf16>(world);
        }));
    }
}

TEST_CASE("threads: sixteen-bit sums are rounded once, not at every rank") {
    // 256 + 1 is no bf16 value and rounds to 256; eight ones added in float first give 264, which is one.
    threads::launch(9, [](const Comm& world) {
        const bf16 mine(world.rank() == 0 ? 256.0F : 1.0F);
        bf16 sum;
        all_reduce(world, ReduceOp::sum, std::span<const bf16>(&mine, 1), std::span<bf16>(&sum, 1), {});
        expect(static_cast<float>(sum) == 264.0F, "264, got ", static_cast<float>(sum));
    });
}

TEST_CASE("threads: a NaN of any rank survives every reduction") {
    threads::launch(4, [](const Comm& world) {
        for (std::size_t broken = 0; broken < 4; ++broken) {
            for (const ReduceOp op : all_ops) {
                float mine = world.rank() == broken ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
                all_reduce_in_place(world, op, std::span<float>(&mine, 1), {});
                expect(mine != mine, name(op), " keeps the NaN of rank ", broken);
            }
        }
    });
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
    threads::launch(2, [](const Comm& world) {
        std::vector<float> five(5);
        const auto refuses = [&](auto call) {
            try {
                call();
            } catch (const std::invalid_argument&) { return true; }
            return false;
        };
        const std::span<const float> in(five);
        const std::span<float> out(five);
        expect(refuses([&] { all_gather(world, in, out, {}); }), "all_gather refuses");
        expect(refuses([&] { all_gather_in_place(world, out, {}); }), "all_gather_in_place refuses");
        expect(refuses([&] { reduce_scatter(world, ReduceOp::sum, in, out, {}); }), "reduce_scatter refuses");
        expect(refuses([&] { all_reduce(world, ReduceOp::sum, in, out.first(4), {}); }), "all_reduce refuses");
        expect(refuses([&] { broadcast(world, out, 2, {}); }), "broadcast refuses");
        expect(refuses([&] { all_to_all(world, in, out, {}); }), "all_to_all refuses");
        expect(refuses([&] { send(world, in, 2, {}); }), "send refuses");
        barrier(world, {});
    });
}
