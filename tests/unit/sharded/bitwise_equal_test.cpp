// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "test_size.hpp"
#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"

namespace sk = shardkit;

namespace bitwise_equal_test {

namespace {

/// One microbatch: every policy then adds the same numbers in the same order. Clipping that bites included.
template <class Precision>
void check_bitwise() {
    for (const std::size_t world : {1U, 2U, 3U, 4U, 5U, 8U}) {
        if (test_size::reduced() && world != 3 && world != 4) { continue; }
        for (const toy::Training& training :
             {toy::Training{.samples = 40, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1},
              toy::Training{.samples = 7,
              .rule = toy::Rule::nesterov,
              .divisor = toy::DivideBy::data_ranks,
              .learning_rate = 0.01,
              .clip = 100}}) {
            CAPTURE(world);
            CAPTURE(training.samples);
            const toy::Mesh mesh(world, 1, 1);
            const auto expected = toy::train<Precision>(mesh, sk::NoShard{}, training);
            const auto check = [&](const std::vector<toy::RankResult>& ranks) {
                for (const auto& rank : ranks) { CHECK(toy::same_bits(rank, expected[0])); }
            };
            check(expected);
            check(toy::train<Precision>(mesh, sk::ShardOptimizer{}, training));
            check(toy::train<Precision>(mesh, sk::ShardGradOp{}, training));
            check(toy::train<Precision>(mesh, sk::FullShard{}, training));
        }
    }
}

}  // namespace

}  // namespace bitwise_equal_test

namespace toy SHARDKIT_BUILD {
template Ranks train_as<sk::Precision<float>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                              sk::RankOptions, const sk::threads::LaunchOptions&);
template Ranks train_as<sk::Precision<sk::bf16>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                                 sk::RankOptions, const sk::threads::LaunchOptions&);
}  // namespace toy SHARDKIT_BUILD

namespace bitwise_equal_test {

TEST_CASE("the four plain policies give the same bits with one microbatch, clipping included, on every rank") {
    SUBCASE("fp32") { check_bitwise<sk::Precision<float>>(); }
    SUBCASE("bf16 with fp32 master and reduction") { check_bitwise<sk::Precision<sk::bf16>>(); }
}

}  // namespace bitwise_equal_test
