// SPDX-License-Identifier: Apache-2.0
#include <shardkit/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace optimizer_step_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class Layer, class P>
std::vector<double> read(Layer& layer, P parameter, std::size_t numel) {
    std::vector<double> values(numel);
    layer.read_full(parameter, std::span(values));
    return values;
}

/// One step in which every gradient i is factor * (i + 1) on each rank, divided by the ranks.
template <class Layer, class Optimizer>
void step(Layer& layer, Optimizer& optimizer, double factor) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    toy::add(accumulation, layer, factor);
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}

template <class Body>
void on_three_ranks(const sk::DynamicPolicy& policy, Body body) {
    CAPTURE(policy.name());
    sk::threads::run(Flat{3}, [&](auto& rank) {
        auto layer = toy::linear_layer(rank, "blocks.0", policy);
        body(rank, layer, sk::Model{layer});
    });
}
template <class Body>
void with_each_policy(Body body) {
    on_three_ranks(sk::DynamicPolicy(sk::NoShard{}), body);
    on_three_ranks(sk::DynamicPolicy(sk::ShardOptimizer{}), body);
    on_three_ranks(sk::DynamicPolicy(sk::FullShard{}), body);
}

const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };

}  // namespace

TEST_CASE("parameter groups: the first that matches decides on weight decay and learning rate") {
    with_each_policy([](auto&, auto& layer, auto model) {
        sk::SGD optimizer{
            model,
            {.learning_rate = 0.5, .weight_decay = 0.25},
            {{.matches = is_bias, .learning_rate_scale = 0.5, .weight_decay = 0.0},
             {.matches = [](auto path, auto) { return path == "blocks.0"; }, .learning_rate_scale = 2}}};
        step(layer, optimizer, 4);
        const auto weight = read(layer, Weight{}, 35);
        const auto bias = read(layer, Bias{}, 7);
        for (std::size_t i = 0; i < 35; ++i) {
            const double before = static_cast<double>(i);
            CHECK(weight[i] == before - 0.5 * 2 * (4 * (before + 1) + 0.25 * before));
        }
        for (std::size_t i = 0; i < 7; ++i) {
            const double number = static_cast<double>(i);
            CHECK(bias[i] == 100 + number - 0.5 * 0.5 * 4 * (number + 1));
        }
    });
}

TEST_CASE("AdamW's first step goes by the sign of the gradient, after the decay") {
    with_each_policy([](auto&, auto& layer, auto model) {
        sk::AdamW optimizer{model,
                            {.learning_rate = 0.125, .epsilon = 1e-300, .weight_decay = 0.5},
                            {{.matches = is_bias, .weight_decay = 0.0}}};
        step(layer, optimizer, -3);
        const auto weight = read(layer, Weight{}, 35);
        const auto bias = read(layer, Bias{}, 7);
        for (std::size_t i = 0; i < 35; ++i) {
            CHECK(weight[i] == doctest::Approx(static_cast<double>(i) * (1 - 0.125 * 0.5) + 0.125).epsilon(1e-12));
        }
        for (std::size_t i = 0; i < 7; ++i) {
            CHECK(bias[i] == doctest::Approx(100.125 + static_cast<double>(i)).epsilon(1e-13));
        }
    });
}

TEST_CASE("a learning rate takes effect with the next step") {
    with_each_policy([](auto&, auto& layer, auto model) {
        sk::SGD optimizer{model, {.learning_rate = 1}};
        step(layer, optimizer, 1);
        optimizer.set_learning_rate(0.25);
        CHECK(optimizer.options().learning_rate == 0.25);
        step(layer, optimizer, 1);
        for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
            CHECK_THROWS_WITH_AS(optimizer.set_learning_rate(wrong),
                                 doctest::Contains("expected a finite number >= 0"), std::invalid_argument);
        }
        CHECK(optimizer.options().learning_rate == 0.25);
        const auto bias = read(layer, Bias{}, 7);
        for (std::size_t i = 0; i < 7; ++i) {
            CHECK(bias[i] == 100 + static_cast<double>(i) - 1.25 * static_cast<double>(i + 1));
        }
    });
}

TEST_CASE("momentum has one state, plain SGD has none, AdamW has two") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        CHECK(sk::SGD{model, {}}.shards().empty());
        sk::SGD momentum{model, {.rule = sk::Momentum::classical, .momentum = 0.5}};
        REQUIRE(momentum.shards().size() == 2);
        step(layer, momentum, 1);
        step(layer, momentum, 1);
        for (const auto& info : momentum.shards()) {
            CHECK(info.kind == "momentum_buffer");
            for (std::size_t i = 0; i < info.range.size(); ++i) {
                CHECK(static_cast<const double*>(info.data)[i] == 1.5 * static_cast<double>(i + 1));
            }
        }
        CHECK(sk::AdamW{model}.shards().size() == 4);
    });
}

TEST_CASE("padding is zero and stays zero, also with the least epsilon") {
    const auto check = [](const sk::DynamicPolicy& policy) {
        CAPTURE(policy.name());
        sk::threads::run(Flat{4}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::DynamicPolicy, sk::Precision<sk::bf16>>(rank, "layer", policy);
            sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.125, .epsilon = 1.2e-38, .weight_decay = 0.5}};
            for (int i = 0; i < 3; ++i) { step(layer, optimizer, 1); }
            // bf16: weight at 0..34, bias at 64..70 of four shards of 64; the last two hold nothing at all.
            const auto is_padding = [](std::size_t flat) { return (flat >= 35 && flat < 64) || flat >= 71; };
            const auto expect_zero = [&](auto values, std::size_t origin) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    if (is_padding(origin + i)) { CHECK(static_cast<float>(values[i]) == 0); }
                }
            };
            auto& state = sk::spi::group(layer);
            auto& store = state.parameters();
            REQUIRE(layer.layout().buffer_numel() == 256);
            expect_zero(std::span<const sk::bf16>(store.resting()), store.resting_range().begin);
            expect_zero(std::span<const float>(store.master()), state.geometry().updated.begin);
            expect_zero(sk::gradient_shard(layer), state.gradients().reduced_range().begin);
            const std::size_t updated = state.geometry().updated.size();
            for (const auto& info : optimizer.shards()) {
                const auto* const buffer = static_cast<const float*>(info.data) - info.local.begin;
                expect_zero(std::span(buffer, updated), state.geometry().updated.begin);
            }
            for (const double value : read(layer, Weight{}, 35)) { CHECK(std::isfinite(value)); }
        });
    };
    check(sk::DynamicPolicy(sk::NoShard{}));
    check(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check(sk::DynamicPolicy(sk::FullShard{}));
}

TEST_CASE("a NaN gradient shows: the norm and the clipped update are NaN on every rank") {
    with_each_policy([](auto& rank, auto& layer, auto model) {
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(layer);
        toy::fill(handle, 1);
        if (rank.rank() == 2) { handle[Weight{}][34] = std::nan(""); }
        accumulation.add(std::move(handle));
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        CHECK(std::isnan(norm.value()));
        CHECK(norm.found_inf() == sk::FoundInf::yes);
        const auto coefficient = sk::clip(norm, 1);
        CHECK(std::isnan(coefficient.value()));
        optimizer.step(std::move(reduced), coefficient);
        for (const double value : read(layer, Weight{}, 35)) { CHECK(std::isnan(value)); }
        for (const double value : read(layer, Bias{}, 7)) { CHECK(std::isnan(value)); }
    });
}

TEST_CASE("an infinite gradient makes an infinite norm, the same on every rank") {
    with_each_policy([](auto& rank, auto& layer, auto model) {
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(layer);
        toy::fill(handle, 1);
        if (rank.rank() == 0) { handle[Bias{}][0] = -std::numeric_limits<double>::infinity(); }
        accumulation.add(std::move(handle));
        const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        CHECK(norm.value() == std::numeric_limits<double>::infinity());
        CHECK(norm.found_inf() == sk::FoundInf::yes);
        CHECK(sk::clip(norm, 1).value() == 0);
    });
}

TEST_CASE("wrong hyper-parameters, paths and parameter groups are refused by name") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto a = toy::linear_layer<sk::NoShard>(rank, "same");
        auto b = toy::linear_layer<sk::NoShard>(rank, "same");
        sk::Model model{a};
        sk::Model both{a, b};
        const auto refused = [](auto make, const char* message) {
            CHECK_THROWS_WITH_AS(make(), doctest::Contains(message), std::invalid_argument);
        };
        refused([&] { sk::AdamW{both}; }, "optimizer: two groups have the path 'same'");
        refused([&] { sk::AdamW{model, {.learning_rate = -1}}; }, "learning_rate is -1, expected");
        refused([&] { sk::AdamW{model, {.beta2 = 1}}; }, "beta2 is 1, expected a number in [0, 1)");
        refused([&] { sk::AdamW{model, {.epsilon = std::nan("")}}; }, "epsilon is nan, expected");
        refused([&] { sk::SGD{model, {.weight_decay = HUGE_VAL}}; }, "weight_decay is inf, expected");
        refused([&] { sk::SGD{model, {}, {{.matches = {}}}}; }, "ParamGroup: matches is empty, expected a function");
        refused(
            [&] {
                sk::SGD{model, {}, {{.matches = is_bias, .learning_rate_scale = -2}}};
            },
            "ParamGroup: learning_rate_scale is -2, expected");
        refused(
            [&] {
                sk::SGD{model, {}, {{.matches = is_bias, .weight_decay = std::nan("")}}};
            },
            "ParamGroup: weight_decay is nan, expected");
        sk::Accumulation accumulation{model};
        toy::add(accumulation, a, 1);
        const auto norm = sk::global_norm(sk::reduce(std::move(accumulation), sk::mean));
        for (const double wrong : {0.0, -1.0, std::nan("")}) {
            refused([&] { static_cast<void>(sk::clip(norm, wrong)); }, "expected a number > 0, or unlimited");
        }
    });
}

}  // namespace optimizer_step_test
