// SPDX-License-Identifier: Apache-2.0
// Experts on a mesh of their own, on the NCCL engine: the bits of one rank on threads, and tokens that come to their
// experts and back, whenever each stream runs.
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/expert_parallel.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/policy/policies.hpp>

#include "paced_ranks.hpp"
#include "test_size.hpp"
#include "unit/expert_parallel/experts_training.hpp"
#include "unit/expert_parallel/token_layer.hpp"

namespace experts_test {

namespace sk = shardkit;
using experts_training::Mesh;
using experts_training::Trained;

TEST_CASE("nccl: experts have the bits of one rank on threads, for every ep, policy and pace") {
    const sk::DynamicPolicy whole(sk::TreeSums<sk::NoShard>{sk::Slices{8}});
    const Trained expected = experts_training::train(Mesh{sk::DeviceMesh{1, 1}, 1}, whole, whole);
    for (const std::size_t ep : {1U, 2U, 4U}) {
        const Mesh mesh{sk::DeviceMesh{4, 1}, ep};
        experts_training::for_each_policy(sk::Slices{8}, 4, [&](const sk::DynamicPolicy& policy) {
            if (policy.values(4).shard_group % ep != 0) { return; }
            CAPTURE(ep);
            CAPTURE(std::string(policy.name()));
            for (const paced_ranks::Paces paces : paced_ranks::paces_in_turn(paced_ranks::one_lazy)) {
                std::vector<Trained> all(mesh.size());
                CHECK(paced_ranks::run(mesh, paces, {}, [&](auto& rank, const auto&) {
                          all[rank.rank()] = experts_training::train_on(rank, policy, policy);
                      }) == "");
                for (const Trained& each : all) { CHECK(each == expected); }
            }
        });
    }
}

TEST_CASE("nccl: tokens travel to their experts and back, with and without a capacity, at every pace") {
    for (const std::size_t ep : {1U, 2U, 4U}) {
        for (const std::size_t capacity : {0U, 3U}) {
            CAPTURE(ep);
            CAPTURE(capacity);
            for (const paced_ranks::Paces paces : paced_ranks::some_paces()) {
                CHECK(paced_ranks::run(Mesh{sk::DeviceMesh{4, 1}, ep}, paces, {}, [&](auto& rank, const auto&) {
                          token_layer::check_layer(rank, capacity);
                      }) == "");
            }
        }
    }
}

namespace {

/// Trains a step in which tokens travel beside gathers and reductions, and returns what the stand-in has seen: a rank
/// that is `late` sends its tokens behind the reduction of the dense group, all others before it.
std::string seen_in_a_step(const sk::DynamicPolicy& policy, paced_ranks::Paces paces, bool late) {
    using token_layer::width;
    return paced_ranks::run(Mesh{sk::DeviceMesh{4, 1}, 2}, paces, {}, [&](auto& rank, const auto&) {
        experts_training::Training training(rank, policy, policy);
        sk::ep::TokenExchange exchange{rank, sk::ep::ranks(rank), token_layer::experts};
        const sk::ep::Routes routes = exchange.route_all(2);
        const std::vector<float> zeros(routes.rows_sent() * width);
        const token_layer::Values<float> rows(rank, std::span<const float>(zeros));
        const token_layer::Values<float> received(rank, std::span<const float>(zeros));
        const auto send = [&] { exchange.dispatch(routes, width, rows.view(), received.span()); };
        sk::Accumulation accumulation{training.model};
        training.experts.reshard(training.experts.unshard());
        send();
        accumulation.add(accumulation.gradients(training.experts));
        const bool behind = late && rank.rank() == 1;
        if (!behind) { send(); }
        accumulation.add(accumulation.gradients(training.dense));
        if (behind) { send(); }
        training.optimizer.step(std::move(accumulation));
    });
}

}  // namespace

TEST_CASE("nccl: tokens and gradients have one order on all devices, and another one on a device is seen") {
    for (const auto& policy : {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardGradOp{})}) {
        for (const paced_ranks::Paces paces : paced_ranks::one_lazy) {
            CHECK(seen_in_a_step(policy, paces, false) == "");
            CHECK(seen_in_a_step(policy, paces, true).find("the other way round") != std::string::npos);
        }
    }
}

}  // namespace experts_test
