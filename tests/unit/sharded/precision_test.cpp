// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"

namespace sk = shardkit;

namespace precision_test {

static_assert(std::is_same_v<sk::Precision<sk::bf16>, sk::Precision<sk::bf16, sk::bf16, float, float>>);
static_assert(std::is_same_v<sk::Precision<sk::bf16, float>, sk::Precision<sk::bf16, float, float, float>>);
static_assert(std::is_same_v<sk::Precision<double>, sk::Precision<double, double, double, double>>);
static_assert(sk::Precision<sk::fp16>::has_master && !sk::Precision<sk::fp16>::reduces_in_place);
static_assert(!sk::Precision<float, sk::bf16>::has_master && !sk::Precision<float, sk::bf16>::reduces_in_place);
// What a compiled core finds its precisions by.
template <class P>
constexpr auto& values_of = sk::detail::precision_values<P>;
static_assert(values_of<sk::Precision<sk::e4m3, float>> != values_of<sk::Precision<sk::block_int8, float>>);
static_assert(values_of<sk::Precision<sk::bf16>> == values_of<sk::DefaultPrecision<sk::bf16>>);

namespace {

template <class Precision, class Policy>
void check(Policy policy, double tolerance) {
    for (const std::size_t microbatches : {1U, 3U}) {
        for (const toy::Extents e : {toy::Extents{1}, toy::Extents{3}, toy::Extents{4}, toy::Extents{2, 1, 2}}) {
            if (e.dp % policy.shard_group(e.dp) != 0) { continue; }
            toy::check_against_oracle<Precision>(
                e, policy, {.samples = 24, .microbatches = microbatches, .rule = toy::Rule::momentum, .clip = 2},
                tolerance);
            toy::check_against_oracle<Precision>(
                e, policy,
                {.samples = 5, .microbatches = microbatches, .rule = toy::Rule::adamw, .learning_rate = 0.01},
                tolerance);
        }
    }
}

}  // namespace

TEST_CASE("every precision trains as fp64 does, within its own rounding") {
    SUBCASE("fp32") {
        check<sk::Precision<float>>(sk::NoShard{}, 2e-6);
        check<sk::Precision<float>>(sk::ShardOptimizer{}, 2e-6);
        check<sk::Precision<float>>(sk::HybridShard<2>{}, 2e-6);
    }
    SUBCASE("bf16 with fp32 reduction and master") {
        check<sk::Precision<sk::bf16>>(sk::NoShard{}, 8e-3);
        check<sk::Precision<sk::bf16>>(sk::ShardOptimizer{}, 8e-3);
        check<sk::Precision<sk::bf16>>(sk::FullShard{}, 8e-3);
    }
    SUBCASE("fp16 with fp32 reduction and master") { check<sk::Precision<sk::fp16>>(sk::FullShard{}, 1e-3); }
    SUBCASE("bf16 with fp32 gradients") {
        check<sk::Precision<sk::bf16, float>>(sk::NoShard{}, 5e-3);
        check<sk::Precision<sk::bf16, float>>(sk::FullShard{}, 5e-3);
    }
    SUBCASE("fp32 with bf16 gradients") {
        check<sk::Precision<float, sk::bf16>>(sk::NoShard{}, 8e-3);
        check<sk::Precision<float, sk::bf16>>(sk::FullShard{}, 8e-3);
    }
    SUBCASE("bf16 reduction, an explicit choice") {
        check<sk::Precision<sk::bf16, sk::bf16, sk::bf16>>(sk::FullShard{}, 2e-2);
    }
    SUBCASE("fp32 with reduction and master in fp64") {
        check<sk::Precision<float, float, double, double>>(sk::FullShard{}, 2e-6);
    }
}

}  // namespace precision_test
