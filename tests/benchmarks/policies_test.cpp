// SPDX-License-Identifier: Apache-2.0
// Closed forms, fit and predictions in literals; a wrong value that is planted is found.
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>

#include "../../benchmarks/policies/links.hpp"
#include "../../benchmarks/policies/row.hpp"
#include "../../benchmarks/policies/trainer.hpp"
#include "spoiled_engine.hpp"

namespace policies_test {

namespace {

using namespace benchmarks::policies;

/// Groups that every world size used here divides without padding.
Options model(std::size_t microbatches, ElementKind element = ElementKind::fp32) {
    Options o;
    o.element = element;
    o.groups = {{"a", std::size_t{1} << 20U}, {"b", std::size_t{1} << 12U}};
    o.microbatches = microbatches;
    o.policies = {program::PolicyKind::no_shard, program::PolicyKind::shard_optimizer,
                  program::PolicyKind::shard_grad_op, program::PolicyKind::full_shard,
                  program::PolicyKind::hybrid_shard};
    return o;
}

constexpr double numel = (1U << 20U) + (1U << 12U);
constexpr double norm = 560;  // bytes of a norm's sum, as docs/numerics.md says

double bytes_of(const Options& o, const program::MeshExtents& mesh, program::PolicyKind policy) {
    double sum = 0;
    for (const TheoryOfVerb& verb : theory(o, mesh, policy, {})) { sum += verb.bytes; }
    return sum;
}

}  // namespace

TEST_CASE("theory: what a step moves under each policy, and the norm's bytes") {
    for (const std::size_t m : {1U, 3U}) {
        const Options o = model(m, ElementKind::bf16);
        const program::MeshExtents mesh{4, 1, 1};
        const double g = 2 * numel * 3 / 4;  // gathered and reduced as bf16; results of an all-reduce as fp32
        const double all = 2 * norm * 3.0 / 4;
        const auto count = static_cast<double>(m);
        CHECK(bytes_of(o, mesh, program::PolicyKind::no_shard) == 3 * g + all);
        CHECK(bytes_of(o, mesh, program::PolicyKind::shard_optimizer) == 2 * g + all);
        CHECK(bytes_of(o, mesh, program::PolicyKind::shard_grad_op) == (count + 1) * g + all);
        CHECK(bytes_of(o, mesh, program::PolicyKind::full_shard) == 3 * count * g + all);
        // Groups of two: half of everything, and fp32 halves of the sums across.
        const double hybrid = 3 * count * 2 * numel / 2 + 2 * (4 * numel / 2) / 2;
        CHECK(bytes_of(o, mesh, program::PolicyKind::hybrid_shard) == hybrid + 2 * norm * 3.0 / 4);
        // Across groups, of a half each: bf16 is gathered, and fp32 reduced once, or with every microbatch.
        const double within = 3 * count * 2 * numel / 2 + 2 * norm * 3.0 / 4;
        CHECK(bytes_of(o, mesh, program::PolicyKind::hybrid_optimizer) == within + (4 + 2) * numel / 2 / 2);
        CHECK(bytes_of(o, mesh, program::PolicyKind::secondary_shard) == within + (4 * count + 2) * numel / 2 / 2);
        CHECK(theory(o, mesh, program::PolicyKind::hybrid_optimizer, {})[0].across == 2 * numel / 2 / 2);
        CHECK(theory(o, mesh, program::PolicyKind::hybrid_shard, {})[2].across == 2 * (4 * numel / 2) / 2);
    }
}

TEST_CASE("theory: cp holds replicas of shards, tp copies") {
    const Options o = model(1);
    const double across_cp = 2 * (4 * numel / 2) / 2;
    CHECK(bytes_of(o, {2, 1, 2}, program::PolicyKind::full_shard) ==
          3 * 4 * numel / 2 + across_cp + 2 * norm * 3.0 / 4);
    CHECK(bytes_of(o, {2, 2, 1}, program::PolicyKind::full_shard) == 3 * 4 * numel / 2 + 2 * norm * 3.0 / 4);
    CHECK(bytes_of(o, {1, 1, 1}, program::PolicyKind::full_shard) == 0);
    const Theory gathered =
        theory(o, {2, 1, 1}, program::PolicyKind::full_shard, {.gathered_all_reduce_addends = 560});
    CHECK(gathered[2].bytes == norm);
    const Theory counted = theory(o, {2, 1, 1}, program::PolicyKind::full_shard, {});
    CHECK(counted[0].calls == 4);
    CHECK(counted[1].calls == 2);
    CHECK(counted[2].calls == 1);
}

TEST_CASE("theory and planner agree on every policy, mesh, type, and on sizes that need padding") {
    for (const ElementKind element : {ElementKind::fp64, ElementKind::fp32, ElementKind::bf16}) {
        Options o = model(2, element);
        o.groups.push_back({"odd", 12345});
        for (const program::MeshExtents mesh :
             {program::MeshExtents{6, 1, 1}, program::MeshExtents{4, 2, 3}, program::MeshExtents{512, 1, 8}}) {
            for (const program::PolicyKind policy : o.policies) {
                Row row;
                const shardkit::Plan plan = plan_model(o, mesh, policy);
                const Theory expected = theory(o, mesh, policy, {});
                for (std::size_t i = 0; i < step_verbs.size(); ++i) {
                    const auto planned = plan.traffic.total(step_verbs[i]);
                    row.traffic[i] = {expected[i].calls, expected[i].bytes, expected[i],
                                      static_cast<double>(planned.calls), static_cast<double>(planned.moved.value)};
                }
                CHECK(row.wrong() == std::vector<std::string>{});
            }
        }
    }
}

TEST_CASE("a difference in calls, bytes or data is wrong, and is named") {
    Row right;
    right.mesh = {2, 1, 1};
    right.bound = 1e-6;
    right.traffic[0] = {4, 1000, {4, 1000}, 4, 1000};
    CHECK(right.wrong().empty());
    const auto only = [&](auto change) {
        Row row = right;
        change(row);
        const auto found = row.wrong();
        REQUIRE(found.size() == 1);
        return found[0];
    };
    CHECK(only([](Row& row) { row.traffic[0].theory.bytes = 1005; }) ==
          "no_shard on 2x1x1: all_gather: 4 calls, 1000 bytes; theory says 4 and 1005");
    CHECK(only([](Row& row) { row.traffic[0].planned_calls = 5; }) ==
          "no_shard on 2x1x1: all_gather: 4 calls, 1000 bytes; the planner says 5 and 1000");
    CHECK(only([](Row& row) { row.difference = 0.5; }) ==
          "no_shard on 2x1x1: differs from one rank by 0.5, more than 1e-06");
    CHECK(only([](Row& row) { row.difference = std::nan(""); }) ==
          "no_shard on 2x1x1: differs from one rank by nan, more than 1e-06");
}

TEST_CASE("the check run finds an element that a gather spoils, and nothing without") {
    Options o = model(2);
    o.groups = {{"a", 100}, {"b", 100}, {"c", 50}};
    shardkit::self::World world;
    shardkit::Rank rank(shardkit::DeviceMesh<1>{}.grid(), spoiled(world), {});
    using Spoiled = Trainer<float>;
    const shardkit::DynamicPolicy full(shardkit::FullShard{});
    const Reference<float> reference = Spoiled(rank, o, BusyWork(1), full).reference();
    REQUIRE(reference.size() == 4);
    CHECK(reference[0][1][7] == static_cast<float>(Values::parameter(1, 7)));
    CHECK(reference[3][1][7] != reference[0][1][7]);
    CHECK(Spoiled(rank, o, BusyWork(1), full).largest_difference(reference) == 0);
    SpoiledVerbs::spoils = true;
    CHECK(Spoiled(rank, o, BusyWork(1), full).largest_difference(reference) == doctest::Approx(0.125).epsilon(1e-3));
    SpoiledVerbs::spoils = false;
}

TEST_CASE("gradients: deviations cancel over all data ranks and not over a part; all are exact in bf16") {
    for (std::size_t n = 1; n <= 9; ++n) {
        for (std::size_t i = 0; i < 20; ++i) {
            double sum = 0;
            for (std::size_t r = 0; r < n; ++r) { sum += Values::deviation(i, r, n); }
            CHECK(sum == 0);
        }
    }
    bool pair_differs = false;
    for (std::size_t i = 0; i < 4; ++i) {
        pair_differs = pair_differs || Values::deviation(i, 0, 4) + Values::deviation(i, 1, 4) != 0;
    }
    CHECK(pair_differs);
    for (std::size_t i = 0; i < 1000; ++i) {
        const auto value = static_cast<float>(Values::mean_gradient(1, i, 2, 3) + Values::deviation(i, i % 5, 5));
        CHECK(static_cast<float>(static_cast<shardkit::bf16>(value)) == value);
        const auto parameter = static_cast<float>(Values::parameter(1, i));
        CHECK(static_cast<float>(static_cast<shardkit::bf16>(parameter)) == parameter);
    }
}

TEST_CASE("a fit gives back the link that made the samples") {
    std::vector<LinkSample> samples;
    for (double bytes = 1e3; bytes < 1e9; bytes *= 10) {
        samples.push_back({3, bytes, 3 * 5e-6 + bytes / 2e9});
        samples.push_back({7, bytes, 7 * 5e-6 + bytes / 2e9});
    }
    const FittedLink fitted = fit_link(samples);
    CHECK(fitted.link.latency == doctest::Approx(5e-6).epsilon(1e-9));
    CHECK(fitted.link.bandwidth == doctest::Approx(2e9).epsilon(1e-9));
    CHECK(fitted.samples == 12);
    CHECK(fitted.error < 1e-9);
}

TEST_CASE("a fit has no negative latency or bandwidth, says how far off it is, and refuses one size") {
    const std::vector<LinkSample> cached{{1, 1e3, 1e-7}, {1, 1e6, 2e-4}};  // faster than its slope for small ones
    CHECK(fit_link(cached).link.latency == 0);
    CHECK(fit_link(cached).error > 0.1);
    const std::vector<LinkSample> falling{{1, 1e3, 2e-4}, {1, 1e6, 1e-4}};
    CHECK(std::isinf(fit_link(falling).link.bandwidth));
    CHECK_THROWS_AS(fit_link(std::vector<LinkSample>{{1, 1e3, 1e-6}, {1, 1e3, 1e-6}}), std::invalid_argument);
    CHECK_THROWS_AS(fit_link(std::vector<LinkSample>{{1, 1e3, 0}, {1, 1e6, 1e-4}}), std::invalid_argument);
    CHECK_THROWS_AS(fit_link({}), std::invalid_argument);
}

TEST_CASE("predictions: ring costs over the given links, the step between its bounds") {
    Options o = model(1);
    o.groups = {{"a", std::size_t{1} << 20U}};
    o.policies = {program::PolicyKind::full_shard, program::PolicyKind::hybrid_shard};
    o.predict = {{16, 1, 1}};
    o.links.ranks_per_node = 8;
    o.compute_us = 1000;
    const auto rows = predict(o, Links::given({1e-6, 100e9}, {1e-5, 10e9}));
    REQUIRE(rows.size() == 2);
    const double size = 4.0 * (1U << 20U);
    const double norm_seconds = 30e-5 + 2 * 15.0 / 16 * norm / 10e9;
    CHECK(rows[0].communication ==
          doctest::Approx(3 * (15e-5 + 15.0 / 16 * size / 10e9) + norm_seconds).epsilon(1e-9));
    const double across = 2e-5 + size / 8 / 10e9;
    CHECK(rows[1].shard_group == 8);
    CHECK(rows[1].communication ==
          doctest::Approx(3 * (7e-6 + 7.0 / 8 * size / 100e9) + across + norm_seconds).epsilon(1e-9));
    CHECK(rows[0].nodes == 2);
    CHECK(rows[0].compute == doctest::Approx(3e-3));
    CHECK(rows[0].no_overlap() == rows[0].compute + rows[0].communication);
    CHECK(rows[0].full_overlap() == rows[0].compute);
    CHECK(rows[0].least_exposed() == 0);
}

TEST_CASE("p99 is a value that was measured; busy work grows with what is asked for") {
    std::vector<double> seconds(200);
    for (std::size_t i = 0; i < seconds.size(); ++i) { seconds[i] = static_cast<double>(i + 1); }
    CHECK(benchmarks::summarise(seconds).p99 == 198);
    CHECK(benchmarks::summarise(seconds).median == 100.5);
    CHECK(benchmarks::summarise({3, 1, 2}).p99 == 3);
    CHECK(BusyWork(1e9).links_for(2e-6) == 2000);
    Options o = model(3);
    o.tokens = 10;
    o.gflops = 2;
    CHECK(o.busy_seconds() == doctest::Approx(3 * 6 * 10 * numel / 2e9));
}

}  // namespace policies_test
