// SPDX-License-Identifier: Apache-2.0
// Groups whose optimizer states and masters lie in pinned host memory: the same bits as on the device, whenever each
// stream works, and checkpoints that go on in the other place.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/muon.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "offload_trainer.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace offload_test {

namespace {

namespace sk = shardkit;
using namespace offload_trainer;

template <class T, sk::StateFormat Format = sk::StateFormat::full>
void check(const Run& run, sk::Offload offload, bool everywhere = false) {
    std::string error;
    const auto expected = trained<T, Format>(run, sk::Offload::none, all_paces[0], error);
    REQUIRE(error == "");
    REQUIRE(expected.front().size() > 1000);
    for (std::size_t p = 0; p < 8; ++p) {
        if (!everywhere && p != 1 && p != 6 && (test_size::reduced() || p % 2 == 0)) { continue; }
        CAPTURE(p);
        CHECK(trained<T, Format>(run, offload, all_paces[p], error) == expected);
        CHECK(error == "");
    }
}

constexpr sk::Offload ways[] = {sk::Offload::states};

}  // namespace

TEST_CASE("offload: every policy trains the bits of states on the device, at all paces") {
    for (const sk::Offload way : ways) {
        CAPTURE(static_cast<int>(way));
        for (const sk::DynamicPolicy& policy :
             {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardGradOp{}),
              sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::NoShard{})}) {
            CAPTURE(std::string(policy.name()));
            check<sk::bf16>({.ranks = 3, .policy = policy}, way, policy.name() == sk::FullShard::name);
        }
        check<sk::bf16>({.ranks = 4, .policy = sk::DynamicPolicy(sk::HybridShard<2>{})}, way);
        check<float>({.ranks = 1, .policy = sk::DynamicPolicy(sk::NoShard{})}, way);
        check<double>({}, way);
    }
}

TEST_CASE("offload: split masters, none, rounded ones, and states in bf16 and in blocks") {
    for (const sk::Offload way : ways) {
        check<sk::bf16>({.master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::bf16>({.ranks = 3, .master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::block8>({.ranks = 3, .master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::block8>({.master = sk::MasterWeights::none, .rounding = {{7}}}, way);
        check<float, sk::StateFormat::block8>({}, way);
    }
}

TEST_CASE("offload: loss scales, skipped, frozen and mixed groups, updates in the backward pass, graphs") {
    for (const sk::Offload way : ways) {
        check<sk::bf16>({.loss_scale = true}, way);
        check<float>({.frozen_bias = true, .freezes_a_layer = true}, way);
        check<sk::bf16>({.skips = true}, way);
        check<sk::bf16>({.mixed = true}, way);
        check<sk::bf16, sk::StateFormat::block8>({.master = sk::MasterWeights::split, .in_backward = true}, way);
        check<sk::bf16>({.captured = true}, way, true);
    }
}

}  // namespace offload_test
