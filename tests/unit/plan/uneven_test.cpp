// SPDX-License-Identifier: Apache-2.0
// What the plan says of an uneven all-to-all, against the logs of ranks that make it and against literals.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/plan/traffic_plan.hpp>

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
    sk::threads::launch(ranks, [&](const sk::threads::Communicator& world) {
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
