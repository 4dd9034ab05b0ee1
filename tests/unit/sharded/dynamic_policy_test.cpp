// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/policy/dynamic_policy.hpp>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace dynamic_policy_test {

namespace {

// What cannot be chosen is refused where it is chosen.
static_assert(!std::is_default_constructible_v<sk::DynamicPolicy>);
static_assert(!std::is_constructible_v<sk::DynamicPolicy, int>);
static_assert(!std::is_convertible_v<sk::FullShard, sk::DynamicPolicy>);
static_assert(!sk::rules::StaticPolicy<sk::DynamicPolicy> && sk::rules::StaticPolicy<sk::HybridShard<sk::dynamic>>);

/// The steps of `policy`, chosen at run time, against those of its own type.
template <class Policy>
void check_same(const toy::Mesh& mesh, const Policy& policy, const toy::Training& training) {
    CAPTURE(sk::rules::policy_values(policy, 4).name);
    CAPTURE(mesh.size());
    const auto expected = toy::train_as<sk::Precision<double>>(mesh, policy, training);
    const auto given = toy::train_as<sk::Precision<double>>(mesh, sk::DynamicPolicy(policy), training);
    REQUIRE(given.size() == expected.size());
    for (std::size_t r = 0; r < given.size(); ++r) { CHECK(toy::same_bits(given[r], expected[r])); }
}

}  // namespace

TEST_CASE("a policy chosen at run time trains as the policy itself, bit for bit") {
    const toy::Training training{
        .samples = 24, .microbatches = 2, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    for (const toy::Mesh& mesh : {toy::Mesh(1, 1, 1), toy::Mesh(4, 1, 1), toy::Mesh(2, 1, 2)}) {
        check_same(mesh, sk::NoShard{}, training);
        check_same(mesh, sk::ShardOptimizer{}, training);
        check_same(mesh, sk::ShardGradOp{}, training);
        check_same(mesh, sk::FullShard{}, training);
        check_same(mesh, toy::KeepUntilUpdate{}, training);
        check_same(mesh, toy::FullOverBoth{}, training);
        if (mesh.size() == 4) { check_same(mesh, sk::HybridShard<sk::dynamic>{2}, training); }
    }
}

TEST_CASE("what a policy's type refuses, a policy chosen at run time refuses by name") {
    using Layer = toy::LinearLayer<sk::DynamicPolicy, sk::Precision<float>>;
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        const auto shapes = toy::linear_shapes();
        const Layer::Options exact{sk::DynamicPolicy(sk::FullShard{}), sk::Packing::exact, {}};
        CHECK(thrown_message<std::invalid_argument>([&] {
                  Layer(rank, "mine", shapes, exact);
              }).find("'mine': Packing::exact given, but full_shard shards; expected aligned or packed") !=
              std::string::npos);
        std::vector<float> memory(42);
        CHECK(thrown_message<std::invalid_argument>([&] {
                  Layer::adopt(rank, "mine", shapes, {memory, {}}, exact);
              }).find("'mine': adopt with policy full_shard, expected one that keeps whole parameters") !=
              std::string::npos);
        const Layer::Options pairs{sk::DynamicPolicy(sk::HybridShard<sk::dynamic>{2}), {}, {}};
        CHECK(thrown_message<std::invalid_argument>([&] {
                  Layer(rank, "mine", shapes, pairs);
              }).find("'mine': policy hybrid_shard with shard groups of 2 does not divide dp = 1") !=
              std::string::npos);
        // What can be adopted is.
        auto layer = Layer::adopt(rank, "mine", shapes, {memory, {}},
                                  {sk::DynamicPolicy(sk::NoShard{}), sk::Packing::exact, {}});
        const auto window = layer.unshard();
        CHECK(window[toy::Weight{}].data() == memory.data());
    });
}

}  // namespace dynamic_policy_test
