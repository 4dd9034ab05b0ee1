// SPDX-License-Identifier: Apache-2.0
#include <shardkit/step/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace reduced_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class Reduced, class Layer, class P>
std::vector<double> read(const Reduced& reduced, Layer& layer, P parameter, std::size_t numel) {
    std::vector<double> values(numel);
    reduced.read_full(layer, parameter, std::span(values));
    return values;
}

std::vector<double> multiples(std::size_t n, double factor) {
    std::vector<double> values;
    for (std::size_t i = 1; i <= n; ++i) { values.push_back(factor * static_cast<double>(i)); }
    return values;
}

/// Rank r's gradient of microbatch m is (r + 1) * (m + 1) * (i + 1).
template <class Layer, class Groups, class D>
auto reduced_over(std::size_t rank, Layer& layer, const Groups& model, std::size_t microbatches, D divisor) {
    sk::Accumulation accumulation{model, microbatches};
    for (std::size_t m = 0; m < microbatches; ++m) {
        toy::add(accumulation, layer, static_cast<double>((rank + 1) * (m + 1)));
    }
    return sk::reduce(std::move(accumulation), divisor);
}

template <class Precision>
void check_divisors(const sk::DynamicPolicy& policy) {
    for (const std::size_t world : {1U, 2U, 4U}) {
        for (const std::size_t microbatches : {1U, 3U}) {
            CAPTURE(policy.name());
            CAPTURE(world);
            CAPTURE(microbatches);
            sk::threads::run(Flat{world}, [&](auto& rank) {
                auto layer = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "layer", policy);
                sk::Model model{layer};
                const double total =
                    static_cast<double>(world * (world + 1) / 2 * microbatches * (microbatches + 1) / 2);
                const auto check = [&](auto divisor, double expected) {
                    const auto reduced = reduced_over(rank.rank(), layer, model, microbatches, divisor);
                    CHECK(read(reduced, layer, Weight{}, 35) == multiples(35, expected));
                    CHECK(read(reduced, layer, Bias{}, 7) == multiples(7, expected));
                    // sum of i^2: 35 * 36 * 71 / 6 and 7 * 8 * 15 / 6
                    CHECK(sk::global_norm(reduced).value() ==
                          doctest::Approx(expected * std::sqrt(14910.0 + 140.0)).epsilon(1e-6));
                };
                check(sk::sum, total);
                check(sk::mean, total / static_cast<double>(world));
                check(sk::divide_by(8), total / 8);
            });
        }
    }
}
template <class Precision>
void check_divisors() {
    check_divisors<Precision>(sk::DynamicPolicy(sk::NoShard{}));
    check_divisors<Precision>(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check_divisors<Precision>(sk::DynamicPolicy(sk::ShardGradOp{}));
    check_divisors<Precision>(sk::DynamicPolicy(sk::FullShard{}));
    check_divisors<Precision>(sk::DynamicPolicy(toy::ReplicateGradients{}));
    check_divisors<Precision>(sk::DynamicPolicy(toy::PairedGradOp{}));
}

}  // namespace

TEST_CASE("sum, mean and divide_by give the same numbers for every policy") {
    SUBCASE("fp64") { check_divisors<sk::Precision<double>>(); }
    SUBCASE("fp16 gradients, summed in fp32") { check_divisors<sk::Precision<float, sk::fp16>>(); }
}

TEST_CASE("a divisor is a number that fp32 gradients can be divided by") {
    const char* const expected = " given, expected a number from 1e-30 to 1e+30 (";
    for (const double wrong :
         {0.0, -1.0, 1e-300, 9e-31, 1.1e30, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
        CAPTURE(wrong);
        CHECK_THROWS_WITH_AS(static_cast<void>(sk::divide_by(wrong)), doctest::Contains(expected),
                             std::invalid_argument);
    }
    CHECK(sk::divide_by(1e-30).of(2) == 1e-30);
    CHECK(sk::divide_by(1e30).of(2) == 1e30);
}

TEST_CASE("mean divides by dp x cp, and tp peers are not counted") {
    using Mesh = sk::DeviceMesh<2, 2, 2>;
    const auto check = [](const sk::DynamicPolicy& policy) {
        sk::threads::run(Mesh{}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            // World ranks of tp = 0 are 0, 1, 4, 5, of tp = 1 are 2, 3, 6, 7.
            const double total =
                rank.mesh().template coordinate<sk::Tp>(rank.rank()) == 0 ? 1 + 2 + 5 + 6 : 3 + 4 + 7 + 8;
            const auto reduced = reduced_over(rank.rank(), layer, model, 1, sk::mean);
            CHECK(read(reduced, layer, Bias{}, 7) == multiples(7, total / 4));
        });
    };
    check(sk::DynamicPolicy(sk::NoShard{}));
    check(sk::DynamicPolicy(sk::FullShard{}));
    check(sk::DynamicPolicy(sk::ShardOptimizer{}));
}

TEST_CASE("reading gradients checks size and group") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto a = toy::linear_layer<sk::FullShard>(rank, "a");
        auto b = toy::linear_layer<sk::FullShard>(rank, "b");
        sk::Model model{a, b};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, a, 1);
        accumulation.skip(b);
        const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        std::vector<double> values(8);
        CHECK_THROWS_WITH_AS(reduced.read_full(a, Bias{}, std::span(values)),
                             doctest::Contains("'a' parameter 'bias': read_full with 8 elements, expected 7"),
                             std::invalid_argument);
        values.resize(7);
        CHECK_USAGE_ERROR(reduced.read_full(b, Bias{}, std::span(values)),
                          "'b': read_full of a group without gradients");
    });
}

TEST_CASE("gradients that the user's own kernels have reduced take part as they are") {
    const auto check = [](const sk::DynamicPolicy& policy) {
        CAPTURE(policy.name());
        sk::threads::run(Flat{2}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            rank.traffic().clear();
            // The flat order: weight at 0, bias at 48 of 64; each rank holds 32 of them, or all.
            const std::span<double> gradient = sk::gradient_shard(layer);
            const bool whole = policy.values().gradients == sk::Placement::replicated;
            REQUIRE(gradient.size() == (whole ? 64 : 32));
            const std::size_t origin = whole ? 0 : 32 * rank.rank();
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                const std::size_t flat = origin + i;
                gradient[i] = flat < 35 ? 2 : flat >= 48 && flat < 55 ? 4 : 1e300;  // padding is nobody's business
            }
            auto reduced = sk::assume_reduced(model, sk::mean);
            CHECK(toy::calls(rank, sk::Verb::all_reduce) + toy::calls(rank, sk::Verb::reduce_scatter) == 0);
            CHECK(read(reduced, layer, Weight{}, 35) == std::vector<double>(35, 1.0));
            CHECK(sk::global_norm(reduced).value() == doctest::Approx(std::sqrt(35.0 + 7 * 4)).epsilon(1e-14));
            optimizer.step(std::move(reduced));
            std::vector<double> values(35);
            layer.read_full(Weight{}, std::span(values));
            for (std::size_t i = 0; i < 35; ++i) { CHECK(values[i] == static_cast<double>(i) - 1); }
            values.resize(7);
            layer.read_full(Bias{}, std::span(values));
            for (std::size_t i = 0; i < 7; ++i) { CHECK(values[i] == 100 + static_cast<double>(i) - 2); }
            // A loss scale is divided out, and an overflow on rank 0 leaves everything as it is.
            sk::LossScale scale(rank, {.initial = 8});
            for (const double first : {16.0, std::numeric_limits<double>::infinity()}) {
                std::fill(gradient.begin(), gradient.end(), 16.0);
                if (origin == 0) { gradient[0] = first; }
                auto scaled = sk::assume_reduced(model, sk::mean, scale);
                CHECK(read(scaled, layer, Bias{}, 7) == std::vector<double>(7, 1.0));
                optimizer.step(std::move(scaled));
                layer.read_full(Bias{}, std::span(values));
                for (std::size_t i = 0; i < 7; ++i) { CHECK(values[i] == 100 + static_cast<double>(i) - 3); }
                CHECK(scale.value() == (std::isinf(first) ? 4 : 8));
            }
            // Undivided without a divisor.
            std::fill(gradient.begin(), gradient.end(), 2.0);
            const auto plain = sk::assume_reduced(model);
            CHECK(read(plain, layer, Bias{}, 7) == std::vector<double>(7, 2.0));
        });
    };
    check(sk::DynamicPolicy(sk::NoShard{}));
    check(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check(sk::DynamicPolicy(sk::ShardGradOp{}));
    check(sk::DynamicPolicy(sk::FullShard{}));
    check(sk::DynamicPolicy(toy::ReplicateGradients{}));
}

}  // namespace reduced_test
