// SPDX-License-Identifier: Apache-2.0
// What the plan says of calls that no group makes, among them an uneven all-to-all, against the logs of ranks that
// make them and against literals.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace uneven_test {

namespace {

namespace sk = shardkit;

constexpr std::size_t ranks = 4;

/// Elements that one rank sends to another: rank 2 gets most.
constexpr std::size_t count(std::size_t from, std::size_t to) { return to == 2 ? 100 * from + 40 : from % 2; }

constexpr sk::planner::TrafficPlan planned(std::uint64_t calls) {
    sk::planner::TrafficPlan plan;
    plan.add_uneven(
        sk::planner::PlannedAxes::world(), calls, ranks,
        [](std::size_t from, std::size_t to) { return count(from, to) * sizeof(float); },
        [](std::size_t rank) { return rank / 2; });
    return plan;
}

}  // namespace

TEST_CASE("the plan of an uneven all-to-all is the mean of the ranks' logs") {
    std::atomic<std::uint64_t> payload{0};
    std::atomic<std::uint64_t> moved{0};
    sk::threads::launch(ranks, [&](const sk::Communicator& world) {
        std::vector<std::size_t> sends;
        std::vector<std::size_t> receives;
        std::size_t sent = 0;
        std::size_t received = 0;
        for (std::size_t q = 0; q < ranks; ++q) {
            sends.push_back(count(world.rank(), q));
            receives.push_back(count(q, world.rank()));
            sent += sends.back();
            received += receives.back();
        }
        const std::vector<float> from(sent);
        std::vector<float> to(received);
        for (int i = 0; i < 2; ++i) { sk::all_to_all_uneven(world, from, sends, to, receives); }
        const auto logged = world.traffic().total(sk::Verb::all_to_all_uneven);
        payload += logged.payload.value;
        moved += logged.moved.value;
    });
    const sk::planner::PlannedTraffic plan = planned(2).total(sk::Verb::all_to_all_uneven);
    CHECK(plan.calls == 2);
    CHECK(plan.payload.value * ranks == payload);
    CHECK(plan.moved.value * ranks == moved);
}

TEST_CASE("calls that a trainer makes itself are planned as its log counts them, with what crosses hosts") {
    using sk::Verb;
    constexpr std::size_t n = 3 * ranks;  // bf16 and less would be widened on the way
    constexpr auto mesh = sk::DeviceMesh<ranks>{}.grid();
    sk::planner::TrafficPlan plan;
    for (const Verb verb : {Verb::all_gather, Verb::reduce_scatter, Verb::all_reduce, Verb::all_to_all}) {
        plan.add(verb, sk::planner::PlannedAxes::world(), 2, n * sizeof(float), mesh, sk::threads::traits, 2);
    }
    sk::threads::launch(ranks, [&](const sk::Communicator& world) {
        const std::vector<float> part(n / ranks);
        std::vector<float> all(n), shard(n / ranks), other(n);
        for (int i = 0; i < 2; ++i) {
            sk::all_gather(world, part, all);
            sk::reduce_scatter(world, sk::ReduceOp::sum, all, shard);
            sk::all_reduce_in_place(world, sk::ReduceOp::sum, all);
            sk::all_to_all(world, all, other);
        }
        for (const sk::planner::PlannedRow& row : plan.rows()) {
            const auto logged = world.traffic().total(row.verb);
            const bool same = logged.calls == row.traffic.calls && logged.payload == row.traffic.payload &&
                              logged.moved == row.traffic.moved;
            if (!same) { throw std::runtime_error("not as planned: " + std::string(name(row.verb))); }
        }
    });
    CHECK(plan.rows().size() == 4);
    // Of 48 bytes a rank's part is 12; two of them come from the other host, in each of two calls.
    CHECK(plan.total(Verb::all_to_all).moved.value == 2 * 3 * 12);
    CHECK(plan.total(Verb::all_to_all).between_hosts.value == 2 * 2 * 12);
    // Over the two axes of a mesh: within hosts, and to the next rank of a ring that has one link between hosts each
    // way.
    constexpr auto two = sk::DeviceMesh<2, 1, 2>{}.grid();
    sk::planner::TrafficPlan rings;
    rings.add(Verb::send, sk::planner::PlannedAxes::of(two, sk::Axes<sk::Cp>{}), 3, 100, two, {}, 2);
    rings.add(Verb::receive, sk::planner::PlannedAxes::of(two, sk::Axes<sk::Dp>{}), 3, 100, two, {}, 2);
    rings.add(Verb::all_gather, sk::planner::PlannedAxes::of(two, sk::Axes<sk::Tp>{}), 3, 100, two, {}, 2);
    CHECK(rings.rows().size() == 2);
    CHECK(rings.total(Verb::send).moved.value == 300);
    CHECK(rings.total(Verb::send).between_hosts.value == 0);
    CHECK(rings.total(Verb::receive).between_hosts.value == 300);
}

TEST_CASE("what all wait for is the rank that sends or receives most; the mean says what crosses hosts") {
    const sk::planner::PlannedTraffic plan = planned(1).total(sk::Verb::all_to_all_uneven);
    // Rank 2 receives 40, 140 and 340 elements; ranks 0 and 1 are on the other host, and send it 180 of them.
    CHECK(plan.busiest.value == 520 * 4);
    // Ranks 1 and 3 send one element to each of the others; of these cross 1 -> 3, 3 -> 0 and 3 -> 1.
    CHECK(plan.moved.value == (520 + 2 + 2));
    CHECK(plan.between_hosts.value == (180 + 3));
    const sk::planner::TimeModel model{sk::planner::TimeModel::links({1e-6, 1e9}),
                                       sk::planner::TimeModel::links({1e-5, 1e8}), 0};
    CHECK(sk::planner::communication_seconds(planned(1), sk::DeviceMesh(ranks, 1, 1).grid(), model) ==
          doctest::Approx(3e-6 + 2080 / 1e9).epsilon(1e-12));
    sk::planner::TrafficPlan alone;
    alone.add_uneven(
        sk::planner::PlannedAxes::world(), 5, 1, [](std::size_t, std::size_t) { return 8U; },
        [](std::size_t) { return 0; });
    CHECK(alone.rows().empty());
}

}  // namespace uneven_test
