// SPDX-License-Identifier: Apache-2.0
// Hyper-parameters that change from step to step, against the rules by hand in fp64.
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace set_options_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

constexpr std::size_t steps = 5;
const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };

/// Of a step, for all parameters but the bias.
sk::AdamWOptions own(std::size_t step) {
    const auto t = static_cast<double>(step);
    return {.learning_rate = 0.5 / (t + 1),
            .beta1 = 0.5 + t / 16,
            .beta2 = 0.875 - t / 16,
            .epsilon = 1e-8 * (t + 1),
            .weight_decay = t / 8};
}
/// The bias' ParamGroup: a weight decay and beta2 of its own.
std::vector<sk::ParamGroup> groups(std::size_t step) {
    const auto t = static_cast<double>(step);
    return {{.matches = is_bias, .learning_rate_scale = 1 + t, .weight_decay = 0.5 - t / 16, .beta2 = 0.25 + t / 16}};
}
double gradient(std::size_t step, std::size_t i) { return (step % 2 == 0 ? 0.5 : -2.0) * static_cast<double>(i + 1); }

/// What the steps make of element i of a parameter that begins with `value`.
template <class OptionsOf>
double by_hand(double value, std::size_t i, const OptionsOf& options_of) {
    sk::rules::AdamWRule::Progress progress;
    double states[2] = {};
    for (std::size_t t = 0; t < steps; ++t) {
        const sk::AdamWOptions options = options_of(t);
        sk::rules::AdamWRule::advance(progress, options);
        sk::rules::AdamWRule::update<double>(progress, options, 1)(value, states[0], states[1], gradient(t, i));
    }
    return value;
}
sk::AdamWOptions of_bias(std::size_t t) {
    const sk::ParamGroup group = groups(t)[0];
    sk::AdamWOptions options = own(t);
    options.learning_rate *= group.learning_rate_scale;
    options.weight_decay = *group.weight_decay;
    options.beta2 = *group.beta2;
    return options;
}

template <class Layer, class Optimizer>
void step(Layer& layer, Optimizer& optimizer, std::size_t t) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    toy::add(accumulation, layer, gradient(t, 0));
    optimizer.step(std::move(accumulation));
}

template <class Layer>
void check_values(Layer& layer) {
    const auto window = layer.unshard();
    for (std::size_t i = 0; i < 35; ++i) { CHECK(window[Weight{}][i] == by_hand(static_cast<double>(i), i, own)); }
    for (std::size_t i = 0; i < 7; ++i) {
        CHECK(window[Bias{}][i] == by_hand(static_cast<double>(100 + i), i, of_bias));
    }
}

}  // namespace

TEST_CASE("set_options and set_param_groups: every hyper-parameter of every step, also after a load") {
    for (const auto& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                               sk::DynamicPolicy(sk::FullShard{})}) {
        const temporary_folder::Folder folder;
        sk::threads::run(Flat{3}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            sk::AdamW optimizer{model, own(0), groups(0)};
            for (std::size_t t = 0; t < steps; ++t) {
                optimizer.set_options(own(t));
                CHECK(optimizer.options() == own(t));
                optimizer.set_param_groups(groups(t));
                if (t == 2) { sk::checkpoint::save(rank, folder.path(), 2, sk::checkpoint::State{model, optimizer}); }
                step(layer, optimizer, t);
            }
            check_values(layer);
        });
        sk::threads::run(Flat{2}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            sk::AdamW optimizer{model, own(0), groups(0)};
            sk::checkpoint::load(rank, folder.path() + "/step-00000002", sk::checkpoint::State{model, optimizer});
            for (std::size_t t = 2; t < steps; ++t) {
                optimizer.set_options(own(t));
                optimizer.set_param_groups(groups(t));
                step(layer, optimizer, t);
            }
            check_values(layer);
        });
    }
}

TEST_CASE("set_options: NoDecay stays without, a ParamGroup of the bias' own keeps what it gives") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        using Layer = sk::Sharded<sk::TensorList<double>, sk::FullShard, sk::Precision<double>>;
        Layer layer(rank, "layer",
                    {{"a", {5}}, {"b", {5}, {.decay = false}}, {"c", {5}}, {"d", {5}, {.decay = false}}});
        layer.initialize([](auto, auto, auto) { return 1.0; });
        sk::Model model{layer};
        const auto of_cd = [](auto, std::string_view name) { return name == "c" || name == "d"; };
        sk::SGD optimizer{model, {.learning_rate = 0.5}, {{.matches = of_cd, .learning_rate_scale = 0.5}}};
        const auto values = [&](std::vector<double> expected) {
            sk::Accumulation accumulation{model};
            accumulation.add_zero(layer);
            optimizer.step(std::move(accumulation));
            const auto window = layer.unshard();
            for (std::size_t p = 0; p < 4; ++p) { CHECK(window.view(p)[0] == expected[p]); }
        };
        values({1, 1, 1, 1});
        optimizer.set_options({.learning_rate = 0.5, .weight_decay = 0.5});
        values({0.75, 1, 0.875, 1});
        optimizer.set_param_groups({{.matches = of_cd, .learning_rate_scale = 0.5, .weight_decay = 1.0}});
        values({0.5625, 1, 0.65625, 0.75});
        optimizer.set_learning_rate(0);
        values({0.5625, 1, 0.65625, 0.75});
        optimizer.set_learning_rate(1);
        optimizer.set_learning_rate_factor(0.5);
        optimizer.set_param_groups({{.matches = of_cd, .learning_rate_scale = 0}});  // which keeps the factor
        CHECK(optimizer.options().learning_rate == 0.5);
        CHECK(optimizer.learning_rate() == 0.5);
        values({0.421875, 1, 0.65625, 0.75});
        optimizer.set_options({.learning_rate = 1, .weight_decay = 0.5});  // which gives the rate anew
        CHECK(optimizer.learning_rate() == 1);
        values({0.2109375, 1, 0.65625, 0.75});
    });
}

TEST_CASE("set_options: what is refused leaves everything as it was") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
        sk::Model model{layer};
        sk::AdamW optimizer{model, own(0), groups(0)};
        constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
        CHECK_INVALID_ARGUMENT(optimizer.set_options({.beta2 = not_a_number}),
                               "AdamW: beta2 is nan, expected a number in [0, 1)");
        CHECK_INVALID_ARGUMENT(optimizer.set_param_groups({{.matches = is_bias, .beta1 = 1.5}}),
                               "AdamW: beta1 is 1.5, expected a number in [0, 1)");
        CHECK_INVALID_ARGUMENT(optimizer.set_param_groups({{.matches = is_bias, .momentum = 0.5}}),
                               "ParamGroup: momentum is given, which this optimizer does not have");
        CHECK_INVALID_ARGUMENT(optimizer.set_param_groups({}),
                               "set_param_groups: 'layer.bias' is of no ParamGroup, expected ParamGroup 0, as the "
                               "optimizer was made");
        CHECK_INVALID_ARGUMENT(
            optimizer.set_param_groups({{.matches = [](auto, auto) { return true; }}}),
            "set_param_groups: 'layer.weight' is of ParamGroup 0, expected no ParamGroup, as the optimizer was made");
        CHECK_INVALID_ARGUMENT(
            optimizer.set_param_groups({{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}),
            "set_param_groups: 'layer.bias' is of ParamGroup 0, another optimizer's, expected ParamGroup 0, as the "
            "optimizer was made");
        CHECK(optimizer.options() == own(0));
        CHECK(optimizer.param_groups()[0].beta2 == groups(0)[0].beta2);
        sk::SGD plain{model, {}};
        CHECK_INVALID_ARGUMENT(plain.set_options({.rule = sk::Momentum::classical, .momentum = 0.5}),
                               "SGD: set_options for an optimizer with 1 states, expected as many as it was made "
                               "with, 0");
        for (std::size_t t = 0; t < steps; ++t) {
            optimizer.set_options(own(t));
            optimizer.set_param_groups(groups(t));
            step(layer, optimizer, t);
        }
        check_values(layer);
    });
}

TEST_CASE("set_options: ranks that differ are told what, with both values and where they were set") {
    const auto said = [](auto set, std::string_view first, std::string_view second) {
        sk::threads::run(Flat{2}, [&](auto& rank) {
            const std::string text = thrown_message<sk::CommError>([&] {
                auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
                sk::Model model{layer};
                sk::AdamW optimizer{model, own(0), groups(0)};
                step(layer, optimizer, 0);
                set(optimizer, rank.rank());
                step(layer, optimizer, 1);
                step(layer, optimizer, 2);
            });
            CAPTURE(text);
            CHECK(has(text, "the ranks disagree in call "));
            CHECK(has(text, first));
            CHECK(has(text, second));
            CHECK(has(text, "/unit/optim/set_options_test.cpp:"));
        });
    };
    said([](auto& optimizer, std::size_t rank) { optimizer.set_options({.weight_decay = rank == 0 ? 0.5 : 0.25}); },
         " with weight_decay 0.5 (", " with weight_decay 0.25 (");
    said([](auto& optimizer, std::size_t rank) { optimizer.set_options({.beta1 = rank == 0 ? 0.5 : 0.25}); },
         " with beta1 0.5 (", " with beta1 0.25 (");
    said([](auto& optimizer, std::size_t rank) { optimizer.set_param_groups(groups(rank)); },
         " with ParamGroup of 'layer' parameter 'bias' learning_rate_scale 1, weight_decay 0.5, beta2 0.25 (",
         " with ParamGroup of 'layer' parameter 'bias' learning_rate_scale 2, weight_decay 0.4375, beta2 0.3125 (");
}

}  // namespace set_options_test
