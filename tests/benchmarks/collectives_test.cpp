// SPDX-License-Identifier: Apache-2.0
// The data check of the collectives: it passes what the engine does, and counts what is planted.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/collectives/rows.hpp"
#include "../../benchmarks/common/measure.hpp"
#include "planted_verb.hpp"

namespace collectives_test {

namespace {

using namespace benchmarks;

constexpr std::size_t ranks = 3;
constexpr std::size_t piece = 5;

/// Wrong values on all ranks after two checks, as every rank is told.
template <class V, class T>
std::uint64_t wrong_values(Placement placement, shardkit::ReduceOp op = shardkit::ReduceOp::sum) {
    std::uint64_t wrong = 0;
    shardkit::threads::run(shardkit::DeviceMesh<ranks>{}, [&](shardkit::Rank& rank) {
        const std::uint64_t told =
            wrong_after_checks<V, T>(rank, placement, {{0, 1, 2}, rank.rank(), piece, 2, op}, 2);
        if (rank.rank() == 0) { wrong = told; }
    });
    return wrong;
}

template <class V, class T>
void check_placement(Placement placement) {
    CAPTURE(placement == Placement::in_place);
    CHECK(wrong_values<V, T>(placement) == 0);
    CHECK(wrong_values<Planted<V, Fault::one_element>, T>(placement) == 2);
    CHECK(wrong_values<Planted<V, Fault::not_called>, T>(placement) > 0);
}

}  // namespace

TEST_CASE("every verb: right data passes, one spoiled element is one wrong value, a call left out is many") {
    for (std::size_t i = 0; i < verb_names.size(); ++i) {
        with_verb(static_cast<VerbKind>(i), [&]<class V>(V) {
            CAPTURE(verb_names[i]);
            if constexpr (V::moves_data) {
                if constexpr (V::out_of_place) { check_placement<V, float>(Placement::out_of_place); }
                if constexpr (V::in_place) { check_placement<V, float>(Placement::in_place); }
            }
        });
    }
}

TEST_CASE("a whole buffer that is left alone is wrong wherever a rank should have received something") {
    // All-gather in place: the own piece is there already.
    CHECK(wrong_values<Planted<AllGather, Fault::not_called>, float>(Placement::out_of_place) ==
          2 * ranks * ranks * piece);
    CHECK(wrong_values<Planted<AllGather, Fault::not_called>, float>(Placement::in_place) ==
          2 * ranks * (ranks - 1) * piece);
    CHECK(wrong_values<Planted<Broadcast, Fault::not_called>, float>(Placement::in_place) == 2 * (ranks - 1) * piece);
}

TEST_CASE("sums of the values are exact in 16 bits, and the extremes are those of the ranks") {
    using shardkit::ReduceOp;
    CHECK(wrong_values<AllReduce, shardkit::fp16>(Placement::out_of_place) == 0);
    CHECK(wrong_values<AllReduce, float>(Placement::out_of_place, ReduceOp::max) == 0);
    CHECK(wrong_values<AllReduce, float>(Placement::out_of_place, ReduceOp::min) == 0);
    Shape shape{std::vector<std::size_t>(32), 0, 1, 0, ReduceOp::sum};
    for (std::size_t q = 0; q < 32; ++q) { shape.world_ranks[q] = q; }
    for (std::size_t i = 0; i < 1000; ++i) {
        CHECK(shape.addend(i % 32, i) < 8);
        CHECK(shape.value(i % 32, i) < 251);
        CHECK(shape.reduced(i) <= 256);  // bf16 has every whole number up to 256
    }
}

TEST_CASE("bus bandwidth over algorithm bandwidth, as nccl-tests defines it") {
    for (const double n : {2.0, 3.0, 8.0}) {
        CHECK(AllGather::bus_factor(n) == doctest::Approx((n - 1) / n));
        CHECK(ReduceScatter::bus_factor(n) == doctest::Approx((n - 1) / n));
        CHECK(AllReduce::bus_factor(n) == doctest::Approx(2 * (n - 1) / n));
        CHECK(AllToAll::bus_factor(n) == doctest::Approx((n - 1) / n));
        CHECK(AllToAllUneven::bus_factor(n) == doctest::Approx((n - 1) / n));
        CHECK(Broadcast::bus_factor(n) == 1);
        CHECK(SendReceive::bus_factor(n) == 1);
    }
}

TEST_CASE("an uneven all-to-all's pieces differ, and add up to those of an even one on each rank") {
    for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{64}}) {
        for (const std::size_t k : {std::size_t{1}, std::size_t{7}, std::size_t{100}, std::size_t{1} << 36U}) {
            const Shape shape{std::vector<std::size_t>(n), 0, k, 0, shardkit::ReduceOp::sum};
            for (std::size_t rank = 0; rank < n; ++rank) {
                std::size_t sends = 0;
                std::size_t receives = 0;
                for (std::size_t q = 0; q < n; ++q) {
                    sends += AllToAllUneven::count(shape, rank, q);
                    receives += AllToAllUneven::count(shape, q, rank);
                }
                CHECK(sends == n * k);
                CHECK(receives == n * k);
                CHECK(AllToAllUneven::count(shape, rank, rank) == k);
            }
        }
    }
    const Shape five{std::vector<std::size_t>(5), 0, 100, 0, shardkit::ReduceOp::sum};
    CHECK(AllToAllUneven::count(five, 3, 4) == 40);
    CHECK(AllToAllUneven::count(five, 4, 3) == 160);
}

TEST_CASE("what is copied plainly on each rank is half of what must be read and written") {
    // Of a group of n ranks and size S: all-gather nS read, nS written; reduce-scatter nS and S; all-reduce nS and
    // nS.
    CHECK(AllGather::copied(Placement::out_of_place, 4) * 4 * 2 == doctest::Approx(4 + 4));
    CHECK(AllGather::copied(Placement::in_place, 4) * 4 * 2 == doctest::Approx(3 + 3));
    CHECK(ReduceScatter::copied(Placement::out_of_place, 4) * 4 * 2 == doctest::Approx(4 + 1));
    CHECK(AllReduce::copied(Placement::out_of_place, 4) * 4 * 2 == doctest::Approx(4 + 4));
    CHECK(Broadcast::copied(Placement::in_place, 4) * 4 * 2 == doctest::Approx(3 + 3));
}

TEST_CASE("sizes are whole pieces, at least one element each, and none is measured twice") {
    Options options;
    options.verbs = {VerbKind::all_gather};
    options.min_bytes = 1;
    options.max_bytes = 100;
    options.step_factor = 2;
    std::vector<std::size_t> pieces;
    for (const Row& row : plan_rows(options, 3)) { pieces.push_back(row.count); }
    CHECK(pieces == std::vector<std::size_t>{1, 2, 5});
}

TEST_CASE("a summary holds the median, the least and the 95th percentile") {
    std::vector<double> times;
    for (int i = 20; i > 0; --i) { times.push_back(i); }
    const Summary summary = summarise(times);
    CHECK(summary.median == 10.5);
    CHECK(summary.min == 1);
    CHECK(summary.p95 == 19);
    CHECK(summarise({3}).p95 == 3);
}

}  // namespace collectives_test
