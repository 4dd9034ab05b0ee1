// SPDX-License-Identifier: Apache-2.0
// The time model against the closed forms of ring collectives, in literals.
#include <array>
#include <cstddef>
#include <limits>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace time_model_test {

namespace {

/// 1 us and 1 GB/s within a node, 10 us and 0.1 GB/s across.
constexpr sk::planner::TimeModel model(std::size_t ranks_per_node) {
    return {sk::planner::TimeModel::links({1e-6, 1e9}), sk::planner::TimeModel::links({1e-5, 1e8}), ranks_per_node};
}

/// One group of 2^22 fp32 elements, 16 MiB, without a norm.
template <class Policy>
constexpr double seconds(const sk::AxisGrid& mesh, std::size_t ranks_per_node, std::size_t microbatches = 1,
                         const Policy& policy = {}) {
    struct Weight : sk::Param<"weight", float, 1U << 22U> {};
    const std::array group{sk::describe_group<Weight, Policy>("model", {}, mesh, policy)};
    const auto plan = sk::planner::plan_traffic(group, mesh, {.microbatches = microbatches, .norms_per_step = 0});
    return sk::planner::communication_seconds(plan, mesh, model(ranks_per_node));
}

constexpr double bytes = 4.0 * (1U << 22U);
constexpr sk::AxisGrid mesh_of(std::size_t dp, std::size_t tp = 1, std::size_t cp = 1) {
    return sk::DeviceMesh(dp, tp, cp).grid();
}

}  // namespace

static_assert(seconds<sk::FullShard>(mesh_of(1), 8) == 0);

TEST_CASE("a link: latency for each message, bytes over bandwidth; the default costs nothing") {
    CHECK(sk::planner::LinkModel{2e-6, 4e9}.seconds(3, 8e9) == doctest::Approx(2 + 6e-6).epsilon(1e-12));
    CHECK(sk::planner::LinkModel{}.seconds(5, 1e12) == 0);
    CHECK(slower(sk::planner::LinkModel{1, 10}, sk::planner::LinkModel{2, 20}) == sk::planner::LinkModel{2, 10});
}

TEST_CASE("a link that no machine has is refused where its time is asked for") {
    sk::planner::TimeModel broken;
    broken.across[static_cast<std::size_t>(sk::Verb::all_reduce)] = {0, std::numeric_limits<double>::quiet_NaN()};
    CHECK_INVALID_ARGUMENT(sk::planner::communication_seconds({}, mesh_of(2), broken),
                           "TimeModel: the link across nodes has latency 0 s and bandwidth nan B/s for all_reduce, "
                           "expected a finite latency >= 0 and a bandwidth > 0");
}

TEST_CASE("messages of a ring: n - 1, twice that for an all-reduce, none alone") {
    CHECK(sk::detail::ring_messages(sk::Verb::all_gather, 8) == 7);
    CHECK(sk::detail::ring_messages(sk::Verb::reduce_scatter, 8) == 7);
    CHECK(sk::detail::ring_messages(sk::Verb::all_reduce, 8) == 14);
    CHECK(sk::detail::ring_messages(sk::Verb::receive, 8) == 1);
    CHECK(sk::detail::ring_messages(sk::Verb::all_reduce, 1) == 0);
    CHECK(sk::detail::ring_messages(sk::Verb::receive, 1) == 0);
}

TEST_CASE("policies on one node of four: (n - 1) a + (n - 1) / n S / B for each collective") {
    const double one = 3e-6 + 0.75 * bytes / 1e9;
    CHECK(seconds<sk::NoShard>(mesh_of(4), 4) == doctest::Approx(2 * one).epsilon(1e-12));
    CHECK(seconds<sk::ShardOptimizer>(mesh_of(4), 4, 3) == doctest::Approx(2 * one).epsilon(1e-12));
    CHECK(seconds<sk::ShardGradOp>(mesh_of(4), 4, 3) == doctest::Approx(4 * one).epsilon(1e-12));
    CHECK(seconds<sk::FullShard>(mesh_of(4), 4, 3) == doctest::Approx(9 * one).epsilon(1e-12));
    CHECK(seconds<sk::FullShard>(mesh_of(4), 0) == doctest::Approx(3 * one).epsilon(1e-12));
}

TEST_CASE("a ring over two nodes waits for the links across") {
    const double one = 7e-5 + 0.875 * bytes / 1e8;
    CHECK(seconds<sk::FullShard>(mesh_of(8), 4) == doctest::Approx(3 * one).epsilon(1e-12));
    // Groups of three on nodes of four: ranks 3 to 5 lie on two nodes, and so do ranks 1 and 4; all wait for them.
    const double uneven = 3 * (2e-5 + 2.0 / 3 * bytes / 1e8) + 2e-5 + bytes / 3 / 1e8;
    const sk::HybridShard<sk::dynamic> policy{3};
    CHECK(seconds(mesh_of(6), 4, 1, policy) == doctest::Approx(uneven).epsilon(1e-5));
}

TEST_CASE("hybrid groups stay on their node, and a shard goes across") {
    const double inside = 3e-6 + 0.75 * bytes / 1e9;
    const double across = 2e-5 + bytes / 4 / 1e8;  // two replicas: 2 (n - 1) a + 2 (n - 1) / n S / 4 / B
    const sk::HybridShard<sk::dynamic> policy{4};
    CHECK(seconds(mesh_of(8), 4, 1, policy) == doctest::Approx(3 * inside + across).epsilon(1e-12));
    CHECK(seconds(mesh_of(8), 4, 2, policy) == doctest::Approx(6 * inside + across).epsilon(1e-12));
}

TEST_CASE("cp and tp lie between the ranks of dp: a group of two can span nodes") {
    // dp 2, cp 4 on nodes of four: a shard group is ranks 0 and 4; its replicas over cp share a node.
    const double gather = 1e-5 + 0.5 * bytes / 1e8;
    const double replicas = 6e-6 + 1.5 * bytes / 2 / 1e9;
    CHECK(seconds<sk::FullShard>(mesh_of(2, 1, 4), 4) == doctest::Approx(3 * gather + replicas).epsilon(1e-12));
    CHECK(seconds<sk::FullShard>(mesh_of(2, 4, 1), 4) == doctest::Approx(3 * gather).epsilon(1e-12));
    CHECK(seconds<sk::NoShard>(mesh_of(2, 1, 4), 8) == doctest::Approx(1.4e-5 + 1.75 * bytes / 1e9).epsilon(1e-12));
}

TEST_CASE("the norm's all-reduce runs over the world; a message is counted where it is received") {
    const auto mesh = mesh_of(2, 1, 2);
    const auto cp = sk::planner::PlannedAxes::of(mesh, sk::Axes<sk::Cp>{});
    sk::planner::TrafficPlan plan;
    plan.add(sk::Verb::all_reduce, sk::planner::PlannedAxes::world(), 1, 64, 96);
    plan.add(sk::Verb::send, cp, 2, 1000, 1000);
    plan.add(sk::Verb::receive, cp, 2, 1000, 1000);
    const double expected = 6e-5 + 96 / 1e8 + 2e-6 + 2000 / 1e9;
    CHECK(sk::planner::communication_seconds(plan, mesh, model(2)) == doctest::Approx(expected).epsilon(1e-12));
}

// Four pieces of 100 bytes each way over 10 bytes a second, beside updates of 5 and of 50 seconds each. The first two
// are there after 10 and 20 seconds; the first slot is free after 25, the second after 35.
static_assert(sk::planner::offloaded_update_seconds(20, {sk::ByteCount(400), sk::ByteCount(400), 4}, {0, 10}) ==
              35 + 10 + 5 + 10);
static_assert(sk::planner::offloaded_update_seconds(200, {sk::ByteCount(400), sk::ByteCount(400), 4}, {1, 10}) ==
              11 + 50 + 11 + 3 * 50);
// Where updates take no time, the link goes both ways at once.
static_assert(sk::planner::offloaded_update_seconds(0, {sk::ByteCount(400), sk::ByteCount(400), 4}, {0, 10}) ==
              (4 + 1) * 10);
static_assert(sk::planner::offloaded_update_seconds(7, {sk::ByteCount(30), sk::ByteCount(50), 1}, {0, 10}) ==
              3 + 7 + 5);
static_assert(sk::planner::offloaded_update_seconds(20, {}, {1, 10}) == 20);

}  // namespace time_model_test
