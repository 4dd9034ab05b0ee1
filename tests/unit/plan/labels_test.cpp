// SPDX-License-Identifier: Apache-2.0
// What is planned is what is logged, row by row and label by label, for every policy on meshes with tp and cp.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "test_size.hpp"
#include "unit/plan/planned_and_logged.hpp"
#include "unit/sharded/custom_policies.hpp"

namespace sk = shardkit;

namespace labels_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using OverCp = sk::Axes<sk::DpShard, sk::Cp>;
using HybridOverCp = sk::ShardOver<sk::HybridShard<sk::dynamic>, OverCp>;

std::vector<sk::DynamicPolicy> policies_on(std::size_t dp) {
    std::vector<sk::DynamicPolicy> all;
    const auto add = [&](const auto&... policies) { (all.emplace_back(policies), ...); };
    add(sk::NoShard{}, sk::ShardOptimizer{}, sk::ShardGradOp{}, sk::FullShard{}, sk::HybridShard<1>{},
        sk::HybridShard<sk::dynamic>{dp});
    add(sk::ShardOver<sk::FullShard, OverCp>{}, sk::ShardOver<sk::ShardOptimizer, OverCp>{},
        sk::ShardOver<toy::ReplicateGradients, OverCp>{}, HybridOverCp{1});
    add(toy::KeepUntilUpdate{}, toy::ReplicateGradients{}, toy::ReduceOnce{}, toy::PairedGradOp{});
    if (dp % 2 == 0) { add(sk::HybridShard<2>{}, sk::ShardOver<sk::HybridShard<2>, OverCp>{}); }
    return all;
}

template <class Precision>
void check(const Mesh& mesh, const std::vector<sk::DynamicPolicy>& policies, std::size_t microbatches) {
    CAPTURE(mesh.describe());
    CAPTURE(policies.front().name());
    CAPTURE(policies.front().shard_group(mesh.grid().extent("dp")));
    CAPTURE(policies.front().values().shard_axes.size());
    CAPTURE(microbatches);
    const auto result = toy::planned_and_logged<Precision>(mesh, policies, microbatches);
    CHECK(toy::difference(result, mesh.size()) == "");
    CHECK(result.logged.empty() == (mesh.size() == 1));
}

std::string label(const sk::planner::TrafficPlan& plan, sk::Verb verb) {
    std::string labels;
    for (const auto& [of, axes, traffic] : plan.rows()) {
        if (of == verb) { labels += (labels.empty() ? "" : ", ") + axes.label(); }
    }
    return labels;
}

}  // namespace

TEST_CASE("the rows of a plan are the rows of the log, labels included") {
    for (const Mesh mesh :
         {Mesh(1, 1, 1), Mesh(4, 1, 1), Mesh(3, 1, 1), Mesh(2, 2, 1), Mesh(2, 1, 2), Mesh(4, 1, 2), Mesh(1, 2, 2),
          Mesh(2, 2, 2), Mesh(3, 1, 2), Mesh(1, 1, 3), Mesh(1, 3, 1), Mesh(4, 2, 1)}) {
        if (test_size::reduced() && mesh.size() > 4) { continue; }
        for (const sk::DynamicPolicy& policy : policies_on(mesh.grid().extent("dp"))) {
            check<sk::Precision<float>>(mesh, {policy}, 2);
        }
    }
}

TEST_CASE("the same in 16 bits, whose reductions are not in place, and for one microbatch") {
    for (const Mesh mesh : {Mesh(4, 1, 1), Mesh(2, 2, 2), Mesh(4, 1, 2)}) {
        if (test_size::reduced() && mesh.size() > 4) { continue; }
        for (const sk::DynamicPolicy& policy : policies_on(mesh.grid().extent("dp"))) {
            for (const std::size_t microbatches : {1U, 3U}) {
                check<sk::Precision<float, sk::bf16, float>>(mesh, {policy}, microbatches);
            }
        }
    }
}

TEST_CASE("groups of different policies in one model have rows of their own") {
    for (const Mesh mesh : {Mesh(4, 1, 1), Mesh(4, 1, 2), Mesh(4, 2, 1), Mesh(8, 1, 1)}) {
        check<sk::Precision<float>>(mesh,
                                    {sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::FullShard{}),
                                     sk::DynamicPolicy(HybridOverCp{2})},
                                    2);
        check<sk::Precision<float>>(mesh,
                                    {sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::HybridShard<4>{}),
                                     sk::DynamicPolicy(sk::NoShard{})},
                                    2);
    }
}

TEST_CASE("groups that shard over cp as well have their own labels, in plan and log") {
    const auto result = toy::planned_and_logged<sk::Precision<float>>(
        Mesh(4, 1, 2), {sk::DynamicPolicy(sk::ShardOver<sk::HybridShard<2>, OverCp>{})}, 2);
    CHECK(label(result.plan.traffic, sk::Verb::all_gather) == "dp_shard x cp");
    CHECK(label(result.plan.traffic, sk::Verb::reduce_scatter) == "dp_shard x cp");
    CHECK(label(result.plan.traffic, sk::Verb::all_reduce) == "dp_replicate, world");
    CHECK(result.logged.size() == 4);
    CHECK(result.logged.contains({"all_gather", "dp_shard x cp"}));
    CHECK(result.logged.contains({"reduce_scatter", "dp_shard x cp"}));
    CHECK(result.logged.contains({"all_reduce", "dp_replicate"}));
    CHECK(result.logged.contains({"all_reduce", "world"}));
    CHECK(result.plan.traffic(sk::Verb::all_gather, "dp_shard x cp").calls == 3 * 4);
    CHECK(result.plan.traffic(sk::Verb::all_gather, "dp_shard").calls == 0);
    const std::string table = sk::traffic_table(result.plan.traffic);
    CHECK(table.find("  all_gather      dp_shard x cp          12 calls") == 0);
    CHECK(table.find("  all_reduce      dp_replicate            3 calls") != std::string::npos);
}

}  // namespace labels_test
