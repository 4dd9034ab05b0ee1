// SPDX-License-Identifier: Apache-2.0
#include "unit/sharded/custom_policies.hpp"

#include <stdexcept>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/policy/dynamic_policy.hpp>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace custom_policies_test {

static_assert(sk::ShardPolicy<toy::KeepUntilUpdate> && sk::rules::PolicyRules<toy::KeepUntilUpdate>::hold);
static_assert(sk::ShardPolicy<toy::ReplicateGradients> && sk::rules::PolicyRules<toy::ReplicateGradients>::hold);
static_assert(sk::ShardPolicy<toy::ReduceOnce> && sk::rules::PolicyRules<toy::ReduceOnce>::hold);
static_assert(sk::ShardPolicy<toy::PairedGradOp> && sk::rules::PolicyRules<toy::PairedGradOp>::hold);

TEST_CASE("a user's policies train as one rank does, in fp64 to 1e-12") {
    SUBCASE("sharded parameters that are released at the update") { toy::check_in_fp64<toy::KeepUntilUpdate>(); }
    SUBCASE("replicated gradients, sharded optimizer") { toy::check_in_fp64<toy::ReplicateGradients>(); }
    SUBCASE("sharded parameters, one reduction") { toy::check_in_fp64<toy::ReduceOnce>(); }
    SUBCASE("sharded gradients within pairs") { toy::check_in_fp64<toy::PairedGradOp>(); }
}

TEST_CASE("every legal pair of rows trains as one rank does, in fp64 to 1e-12, on each mesh of groups") {
    // Groups of 1 to 4 ranks, 1 to 3 of them: meshes (n, 1) and (1, n) among them, and fewer elements than ranks.
    std::size_t number = 0;
    for (std::size_t within = 1; within <= 4; ++within) {
        for (std::size_t across = 1; across <= 3; ++across) {
            if (test_size::reduced() && within + across != 4) { continue; }
            std::size_t row = 0;
            toy::for_each_legal_row(within, [&](const sk::rules::PolicyValues& values) {
                if (test_size::reduced() && within != across && row++ % 3 != 0) { return; }
                CAPTURE(toy::words(values));
                // Every number of microbatches with every row, every row on every mesh.
                const toy::Training training{
                    .microbatches = 1 + number++ % 4, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
                const toy::Mesh mesh(within * across, 1, 1);
                toy::compare_with_oracle(values.name, {mesh.size()}, training,
                                         toy::train<sk::Precision<double>>(mesh, sk::DynamicPolicy(values), training),
                                         1e-12);
            });
        }
    }
}

TEST_CASE("ranks that give one name to different rows are told which") {
    const auto make = [](bool differs) {
        sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
            sk::rules::PolicyValues values{.name = "mine",
                                           .parameters = sk::Placement::sharded,
                                           .gradients = sk::Placement::sharded,
                                           .optimizer = sk::Placement::sharded,
                                           .release = sk::Release::at_reshard,
                                           .shard_group = 2};
            if (differs && rank.rank() == 3) { values.across_groups.states = sk::Placement::sharded; }
            const sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy> group{
                rank, "g", sk::TensorList<float>{{"w", {64}}}, {sk::DynamicPolicy(values)}};
        });
    };
    CHECK_NOTHROW(make(false));
    CHECK(
        thrown_message<std::invalid_argument>([&] { make(true); })
            .find("'g': rank 0 makes it with placements across groups as replicated/partial/replicated, rank 3 with "
                  "placements across groups as replicated/partial/sharded") == 0);
}

TEST_CASE("rows across groups that are cp too, and beside tp, train as one rank does") {
    std::size_t turn = 0;
    toy::for_each_legal_row(2, [&](sk::rules::PolicyValues values) {
        CAPTURE(toy::words(values));
        const toy::Training training{.microbatches = 2, .rule = toy::Rule::momentum, .learning_rate = 0.002};
        const auto check = [&](toy::Extents e) {
            if (test_size::reduced() && turn++ % 3 != 0) { return; }
            const toy::Mesh mesh(e.dp, e.tp, e.cp);
            toy::compare_with_oracle(values.name, e, training,
                                     toy::train<sk::Precision<double>>(mesh, sk::DynamicPolicy(values), training),
                                     1e-12);
        };
        check({2, 1, 2});
        check({4, 2, 1});
        values.shard_axes = sk::Axes<sk::DpShard, sk::Cp>{};
        check({4, 1, 2});
        ++turn;  // of slow builds each row on another one of the three
    });
}

}  // namespace custom_policies_test
