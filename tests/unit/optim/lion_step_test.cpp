// SPDX-License-Identifier: Apache-2.0
#include <shardkit/optim/lion.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace lion_step_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

constexpr std::size_t numel = 35 + 7;
constexpr double factors[] = {1, -3, 2, 0.5, -4};  // of the steps' gradients

const sk::DynamicPolicy plain_policies[] = {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                            sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{})};

const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };

template <class Layer>
std::vector<double> read(Layer& layer) {
    std::vector<double> values(numel);
    if constexpr (std::is_same_v<typename Layer::Precision::Gather, double>) {
        layer.read_full(Weight{}, std::span(values).first(35));
        layer.read_full(Bias{}, std::span(values).last(7));
    } else {
        std::vector<float> read(numel);
        layer.read_full(Weight{}, std::span(read).first(35));
        layer.read_full(Bias{}, std::span(read).last(7));
        values.assign(read.begin(), read.end());
    }
    return values;
}

enum class Clip { no, yes };

/// Five steps under a policy: rank r adds factor * (r + 1) * (i + 1). Every rank's parameters.
template <class Precision>
std::vector<std::vector<double>> train(const sk::DynamicPolicy& policy, std::size_t ranks, Clip clip,
                                       sk::LionOptions options) {
    std::vector<std::vector<double>> trained(ranks);
    sk::threads::run(Flat{ranks}, [&](auto& rank) {
        auto layer = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "layer", policy);
        sk::Model model{layer};
        sk::Lion optimizer{model, options, {{.matches = is_bias, .weight_decay = 0}}};
        for (const double factor : factors) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, factor * static_cast<double>(rank.rank() + 1));
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            const auto norm = sk::global_norm(reduced);
            optimizer.step(std::move(reduced), clip == Clip::yes ? sk::clip(norm, 100) : sk::ClipCoefficient{});
        }
        trained[rank.rank()] = read(layer);
    });
    return trained;
}

/// All four policies give the bits of NoShard on every rank.
template <class Precision>
void check_same_bits() {
    const sk::LionOptions options{.learning_rate = 0.01, .weight_decay = 0.1};
    for (const std::size_t ranks : {2U, 3U, 5U}) {
        for (const Clip clip : {Clip::no, Clip::yes}) {
            CAPTURE(ranks);
            const auto expected = train<Precision>(plain_policies[0], ranks, clip, options)[0];
            CHECK(expected[0] != 0);
            for (const auto& policy : plain_policies) {
                CAPTURE(policy.name());
                for (const auto& rank : train<Precision>(policy, ranks, clip, options)) { CHECK(rank == expected); }
            }
        }
    }
}

}  // namespace

TEST_CASE("Lion: every policy, hybrid ones too, trains as a loop over all parameters by hand, to the bit") {
    // Binary fractions throughout, so the order of additions does not matter.
    const sk::LionOptions options{.learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.5};
    std::vector<double> expected(numel);
    for (std::size_t i = 0; i < numel; ++i) {
        const bool bias = i >= 35;
        double p = bias ? 100 + static_cast<double>(i - 35) : static_cast<double>(i);
        double m = 0;
        for (const double factor : factors) {
            const double g = factor * 2.5 * static_cast<double>(bias ? i - 34 : i + 1);  // ranks are 1, 2, 3, 4 times
            const double c = 0.5 * m + 0.5 * g;
            const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
            p -= 0.25 * (sign + (bias ? 0 : 0.5) * p);
            m = 0.75 * m + 0.25 * g;
        }
        expected[i] = p;
    }
    for (const auto& policy : plain_policies) {
        CAPTURE(policy.name());
        for (const auto& rank : train<sk::Precision<double>>(policy, 4, Clip::no, options)) {
            CHECK(rank == expected);
        }
    }
    for (const auto& rank :
         train<sk::Precision<double>>(sk::DynamicPolicy(sk::HybridShard<2>{}), 4, Clip::no, options)) {
        CHECK(rank == expected);
    }
}

TEST_CASE("Lion: the four plain policies give the same bits in every precision, clipping included") {
    SUBCASE("fp64") { check_same_bits<sk::Precision<double>>(); }
    SUBCASE("fp32") { check_same_bits<sk::Precision<float>>(); }
    SUBCASE("bf16 with fp32 master") { check_same_bits<sk::Precision<sk::bf16>>(); }
    SUBCASE("fp16 with fp32 master") { check_same_bits<sk::Precision<sk::fp16>>(); }
}

TEST_CASE("Lion has one state, of the elements that a rank updates, and its momentum is in it") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        sk::Lion optimizer{model, {.beta2 = 0.75}};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 4);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        REQUIRE(optimizer.shards().size() == 2);
        for (const auto& info : optimizer.shards()) {
            CHECK(info.kind == "exp_avg");
            for (std::size_t i = 0; i < info.range.size(); ++i) {
                CHECK(static_cast<const double*>(info.data)[i] == static_cast<double>(i + 1));
            }
        }
        CHECK(optimizer.steps(layer) == 1);
    });
}

TEST_CASE("Lion: a frozen parameter keeps its value under weight decay") {
    for (const auto& policy : plain_policies) {
        CAPTURE(policy.name());
        sk::threads::run(Flat{3}, [&](auto& rank) {
            toy::LinearLayer<sk::DynamicPolicy> layer(rank, "layer", toy::linear_shapes(),
                                                      {policy, sk::Packing::aligned, toy::Linear::mask<Weight>()});
            toy::number(layer);
            sk::Model model{layer};
            sk::Lion optimizer{model, {.learning_rate = 0.5, .weight_decay = 0.5}};
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            const auto values = read(layer);
            for (std::size_t i = 0; i < 35; ++i) { CHECK(values[i] == static_cast<double>(i)); }
            for (std::size_t i = 0; i < 7; ++i) {
                CHECK(values[35 + i] == 0.75 * (100 + static_cast<double>(i)) - 0.5);
            }
        });
    }
}

TEST_CASE("Lion: an overflow under a loss scale changes nothing but the scale") {
    for (const auto& policy : plain_policies) {
        CAPTURE(policy.name());
        sk::threads::run(Flat{3}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::DynamicPolicy, sk::Precision<sk::fp16>>(rank, "layer", policy);
            sk::Model model{layer};
            sk::Lion optimizer{model, {.learning_rate = 0.5}};
            sk::LossScale scale(rank, {.initial = 16});
            const auto step = [&](bool overflows) {
                sk::Accumulation accumulation{model};
                auto handle = accumulation.gradients(layer);
                toy::fill(handle, 0.25 * scale.value());
                if (overflows && rank.rank() == 1) {
                    handle[Bias{}][3] = static_cast<sk::fp16>(std::numeric_limits<float>::infinity());
                }
                accumulation.add(std::move(handle));
                optimizer.step(sk::reduce(std::move(accumulation), sk::mean, scale));
            };
            step(false);
            const auto before = read(layer);
            CHECK(before[1] == 0.5);
            step(true);
            CHECK(read(layer) == before);
            CHECK(scale.value() == 8);
            CHECK(optimizer.steps(layer) == 1);
            step(false);
            CHECK(read(layer)[1] == 0);
            CHECK(optimizer.steps(layer) == 2);
        });
    }
}

TEST_CASE("Lion: padding is zero and stays zero") {
    sk::threads::run(Flat{4}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard, sk::Precision<sk::bf16>>(rank);
        sk::Model model{layer};
        sk::Lion optimizer{model, {.learning_rate = 0.125, .weight_decay = 0.5}};
        for (int i = 0; i < 3; ++i) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        // Weight at 0..34, bias at 64..70 of four shards of 64.
        const std::size_t origin = sk::spi::group(layer).geometry().updated.begin;
        const std::span<const float> master = sk::spi::group(layer).parameters().master();
        REQUIRE(layer.layout().buffer_numel() == 256);
        std::size_t padding = 0;
        for (std::size_t i = 0; i < master.size(); ++i) {
            const std::size_t flat = origin + i;
            if ((flat >= 35 && flat < 64) || flat >= 71) { padding += master[i] == 0 ? 1U : 0U; }
        }
        CHECK(padding == (rank.rank() == 0 ? 29U : rank.rank() == 1 ? 57U : 64U));
    });
}

TEST_CASE("Lion: wrong hyper-parameters are refused by name") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        CHECK_THROWS_WITH_AS((sk::Lion{model, {.beta1 = 1}}),
                             doctest::Contains("Lion: beta1 is 1, expected a number in [0, 1)"),
                             std::invalid_argument);
        sk::Lion optimizer{model};
        CHECK_THROWS_WITH_AS(optimizer.set_learning_rate(-1),
                             doctest::Contains("Lion: learning_rate is -1, expected a finite number >= 0"),
                             std::invalid_argument);
        CHECK(optimizer.options() == sk::LionOptions{});
    });
}

}  // namespace lion_step_test
