// SPDX-License-Identifier: Apache-2.0
// The containers on the NCCL engine: the same source as on the threads engine, the same numbers but for a few
// roundings, whenever each stream runs: NCCL adds in an order of its own.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "paced_ranks.hpp"
#include "small_trainer_runs.hpp"
#include "test_size.hpp"
#include "unit/sharded/one_rank_cases.hpp"

namespace training_test {

namespace {

namespace sk = shardkit;
using small_trainer::Mesh;
using small_trainer::Training;

template <class T, class Policy>
void check(const Mesh& mesh, const Training& training) {
    CAPTURE(Policy::name);
    CAPTURE(mesh.grid().describe());
    CAPTURE(training.microbatches);
    CAPTURE(training.in_flight);
    const sk::DynamicPolicy policy(Policy{});
    const auto expected = small_trainer::on_threads<T>(mesh, policy, training);
    REQUIRE(expected[0].norms.size() == (training.norm ? training.steps - (training.abandon ? 1 : 0) : 0));
    CHECK(small_trainer::difference<T>(mesh, policy, training, expected) == "");
}

template <class T>
void check_policies(const Mesh& mesh, const Training& training) {
    check<T, sk::NoShard>(mesh, training);
    check<T, sk::ShardOptimizer>(mesh, training);
    check<T, sk::ShardGradOp>(mesh, training);
    check<T, sk::FullShard>(mesh, training);
    if (mesh.dp() % 2 == 0) {
        check<T, sk::HybridShard<2>>(mesh, training);
        check<T, sk::HybridOptimizer<2>>(mesh, training);
        check<T, sk::SecondaryShard<2>>(mesh, training);
    }
}

}  // namespace

TEST_CASE("nccl: training is that of threads in fp32, on every policy and pace") {
    for (const std::size_t dp : {1U, 2U, 3U, 4U}) {
        if (!test_size::reduced() || dp == 3) { check_policies<float>(Mesh(dp, 1, 1), {.microbatches = 1}); }
        if (!test_size::reduced() || dp == 2) { check_policies<float>(Mesh(dp, 1, 1), {.microbatches = 3}); }
    }
}

TEST_CASE("nccl: groups that are updated in the backward pass train as threads do in plain steps, at every pace") {
    const auto check_policy = [](std::size_t dp, const sk::DynamicPolicy& policy, std::size_t in_flight) {
        CAPTURE(in_flight);
        const Mesh mesh(dp, 1, 1);
        Training training{.in_flight = in_flight, .norm = false};
        const auto expected = small_trainer::on_threads<float>(mesh, policy, training);
        training.in_backward = true;
        CHECK(small_trainer::on_threads<float>(mesh, policy, training) == expected);
        CHECK(small_trainer::difference<float>(mesh, policy, training, expected) == "");
    };
    for (const std::size_t in_flight : {1U, 2U}) {
        check_policy(3, sk::DynamicPolicy(sk::NoShard{}), in_flight);
        check_policy(3, sk::DynamicPolicy(sk::ShardOptimizer{}), in_flight);
        check_policy(3, sk::DynamicPolicy(sk::ShardGradOp{}), in_flight);
        check_policy(2, sk::DynamicPolicy(sk::FullShard{}), in_flight);
        check_policy(4, sk::DynamicPolicy(sk::HybridShard<2>{}), in_flight);
    }
}

TEST_CASE("nccl: ranks that an all-reduce gives other bits stay together to a few roundings") {
    const sk::DynamicPolicy no_shard(sk::NoShard{});
    const Mesh mesh(3, 1, 1);
    const Training training{.microbatches = 2, .steps = 4};
    std::string error;
    const auto given = small_trainer::on_nccl<float>(mesh, no_shard, training, small_trainer::all_paces[0], error,
                                                     [] { standin::set_same_bits(false); });
    CHECK(error == "");
    CHECK(given[0].parameters != given[1].parameters);
    for (const auto& expected : small_trainer::on_threads<float>(mesh, no_shard, training)) {
        for (const auto& each : given) { CHECK(small_trainer::close(each, expected, 1e-4)); }
    }
}

TEST_CASE("nccl: training with one buffer in flight, and with prefetch into two") {
    check_policies<float>(Mesh(2, 1, 1), {.microbatches = 2, .in_flight = 1});
    check_policies<float>(Mesh(3, 1, 1), {.microbatches = 2, .in_flight = 2, .prefetch = true});
}

TEST_CASE("nccl: steps that follow a schedule, also behind one that was given up") {
    const sk::DynamicPolicy policy(sk::FullShard{});
    const Mesh mesh(3, 1, 1);
    std::string error;
    const auto plain = small_trainer::on_threads<float>(mesh, policy, {.microbatches = 3});
    const auto plain_on_nccl =
        small_trainer::on_nccl<float>(mesh, policy, {.microbatches = 3}, small_trainer::all_paces[0], error);
    CHECK(error == "");
    for (const bool overlaps : {false, true}) {
        CAPTURE(overlaps);
        check_policies<float>(Mesh(2, 1, 1),
                              {.microbatches = 3, .steps = 4, .scheduled = true, .overlaps = overlaps});
        check<sk::bf16, sk::FullShard>(
            mesh, {.microbatches = 2, .steps = 4, .abandon = true, .scheduled = true, .overlaps = overlaps});
        const Training scheduled{.microbatches = 3, .scheduled = true, .overlaps = overlaps};
        CHECK(small_trainer::on_threads<float>(mesh, policy, scheduled) == plain);
        for (const small_trainer::Paces paces : paced_ranks::some_paces()) {
            CHECK(small_trainer::on_nccl<float>(mesh, policy, scheduled, paces, error) == plain_on_nccl);
            CHECK(error == "");
        }
    }
}

TEST_CASE("nccl: training without a norm, and after a step whose gradients were dropped") {
    check_policies<float>(Mesh(2, 1, 1), {.microbatches = 2, .norm = false});
    check_policies<float>(Mesh(2, 1, 1), {.microbatches = 2, .abandon = true});
}

TEST_CASE("nccl: training over dp with cp and tp beside it") {
    check_policies<float>(Mesh(2, 1, 2), {.microbatches = 2});
    if (!test_size::reduced()) { check_policies<float>(Mesh(2, 2, 1), {.microbatches = 2}); }
}

TEST_CASE("nccl: bf16 with fp32 master and reduction") {
    check<sk::bf16, sk::NoShard>(Mesh(4, 1, 1), {.microbatches = 2});
    check<sk::bf16, sk::ShardOptimizer>(Mesh(4, 1, 1), {.microbatches = 2});
    check<sk::bf16, sk::HybridShard<2>>(Mesh(4, 1, 1), {.microbatches = 2});
}

TEST_CASE("nccl: slices have the bits of one rank on threads, on every number of ranks, policy and pace") {
    const auto check_slices = []<class T>(T /*element*/, const Training& training) {
        const sk::Slices cut{8};
        const auto sliced = [&](auto policy) { return sk::DynamicPolicy(sk::TreeSums<decltype(policy)>{cut}); };
        const auto expected = small_trainer::on_threads<T>(Mesh(1, 1, 1), sliced(sk::NoShard{}), training)[0];
        for (const std::size_t ranks : {1U, 2U, 4U, 8U}) {
            for (const sk::DynamicPolicy& policy :
                 {sliced(sk::NoShard{}), sliced(sk::ShardOptimizer{}), sliced(sk::ShardGradOp{}),
                  sliced(sk::FullShard{}), sliced(sk::HybridShard<2>{}), sliced(sk::HybridOptimizer<2>{}),
                  sliced(sk::SecondaryShard<2>{})}) {
                if (ranks == 1 && policy.shard_group(1) == 2) { continue; }
                if (test_size::reduced() && ranks != 2) { continue; }
                CAPTURE(ranks);
                CAPTURE(std::string(policy.name()));
                for (const small_trainer::Paces paces : paced_ranks::paces_in_turn()) {
                    std::string error;
                    for (const auto& outcome :
                         small_trainer::on_nccl<T>(Mesh(ranks, 1, 1), policy, training, paces, error)) {
                        CHECK(outcome == expected);
                    }
                    CHECK(error == "");
                }
            }
        }
        // Sums in another order have other bits.
        Training in_turn = training;
        in_turn.slices = false;
        in_turn.microbatches = 8;
        CHECK(small_trainer::on_threads<T>(Mesh(1, 1, 1), sk::DynamicPolicy(sk::NoShard{}), in_turn)[0].parameters !=
              expected.parameters);
    };
    check_slices(float{}, {.slices = true});
    check_slices(sk::bf16{}, {.slices = true});
    check_slices(float{}, {.scheduled = true, .slices = true, .overlaps = true});
}

TEST_CASE("nccl: a step that overflows under a loss scale is skipped without the host") {
    check_policies<float>(Mesh(3, 1, 1), {.microbatches = 2, .steps = 4, .loss_scale = true});
    const Training fp16{.microbatches = 1, .steps = 4, .loss_scale = true};
    check<sk::fp16, sk::NoShard>(Mesh(2, 1, 1), fp16);
    check<sk::fp16, sk::FullShard>(Mesh(2, 1, 1), fp16);
}

TEST_CASE("nccl: one rank alone works on summoned parameters, under every policy") {
    for (const paced_ranks::Paces paces : paced_ranks::some_paces()) {
        std::vector<std::string> wrong[2];
        const std::string error = paced_ranks::run(Mesh(2, 1, 1), paces, {}, [&](auto& rank, const auto&) {
            for (const auto& policy : one_rank::policies) {
                for (const std::string& each : one_rank::failures(rank, policy)) {
                    wrong[rank.rank()].push_back(each);
                }
            }
        });
        CHECK(error == "");
        for (const auto& of_rank : wrong) {
            for (const std::string& each : of_rank) { FAIL_CHECK(each); }
        }
    }
}

}  // namespace training_test
