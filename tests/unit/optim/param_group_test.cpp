// SPDX-License-Identifier: Apache-2.0
// Betas, epsilon and momentum of a parameter group's own.
#include <shardkit/optim/param_group.hpp>

#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

#define CHECK_REFUSED(expression, text) \
    CHECK(has(thrown_message<std::invalid_argument>([&] { static_cast<void>(expression); }), text))

namespace param_group_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };
constexpr int steps = 5;

template <class Layer, class Optimizer>
void step(Layer& layer, Optimizer& optimizer, int t) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    toy::add(accumulation, layer, t % 2 == 0 ? 0.5 : -2.0);
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}

/// What `steps` steps make of element i of a parameter whose first value is `value`.
template <class Rule>
double trained(const typename Rule::Options& options, double value, std::size_t i) {
    typename Rule::Progress progress;
    double states[2] = {};
    for (int t = 0; t < steps; ++t) {
        Rule::advance(progress, options);
        const auto update = Rule::template update<double>(progress, options, 1);
        const double gradient = (t % 2 == 0 ? 0.5 : -2.0) * static_cast<double>(i + 1);
        if constexpr (Rule::state_names.size() == 2) {
            update(value, states[0], states[1], gradient);
        } else {
            update(value, states[0], gradient);
        }
    }
    return value;
}

template <class Rule, class MakeOptimizer>
void check(const typename Rule::Options& own, const typename Rule::Options& of_bias, MakeOptimizer make) {
    for (const auto& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                               sk::DynamicPolicy(sk::FullShard{})}) {
        sk::threads::run(Flat{3}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            auto optimizer = make(model);
            for (int t = 0; t < steps; ++t) { step(layer, optimizer, t); }
            const auto window = layer.unshard();
            for (std::size_t i = 0; i < 35; ++i) {
                CHECK(window[Weight{}][i] == trained<Rule>(own, static_cast<double>(i), i));
            }
            for (std::size_t i = 0; i < 7; ++i) {
                CHECK(window[Bias{}][i] == trained<Rule>(of_bias, static_cast<double>(100 + i), i));
            }
        });
    }
}

}  // namespace

TEST_CASE("parameter groups: AdamW with betas and epsilon of a group's own, bias corrections of its own") {
    check<sk::rules::AdamWRule>(
        {.learning_rate = 0.5}, {.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 2},
        [](const auto& model) {
            return sk::AdamW{
                model, {.learning_rate = 0.5}, {{.matches = is_bias, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 2.0}}};
        });
}

TEST_CASE("parameter groups: SGD with a momentum of a group's own, Lion with betas") {
    const sk::SgdOptions sgd{.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.5};
    check<sk::rules::SgdRule>(sgd, {.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.25},
                              [&](const auto& model) {
                                  return sk::SGD{model, sgd, {{.matches = is_bias, .momentum = 0.25}}};
                              });
    check<sk::rules::LionRule>({.learning_rate = 0.5}, {.learning_rate = 0.5, .beta1 = 0.5}, [](const auto& model) {
        return sk::Lion{model, {.learning_rate = 0.5}, {{.matches = is_bias, .beta1 = 0.5}}};
    });
}

TEST_CASE("parameter groups: what an optimizer does not have, and what is out of range, is refused by name") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        CHECK_REFUSED((sk::Lion{model, {}, {{.matches = is_bias, .epsilon = 1.0}}}),
                      "ParamGroup: epsilon is given, which this optimizer does not have");
        CHECK_REFUSED((sk::SGD{model, {}, {{.matches = is_bias, .beta2 = 0.5}}}),
                      "ParamGroup: beta2 is given, which this optimizer does not have");
        CHECK_REFUSED((sk::AdamW{model, {}, {{.matches = is_bias, .momentum = 0.5}}}),
                      "ParamGroup: momentum is given, which this optimizer does not have");
        CHECK_REFUSED((sk::AdamW{model, {}, {{.matches = is_bias, .beta1 = 1.5}}}), "AdamW: beta1 is 1.5");
        CHECK_REFUSED((sk::SGD{model, {}, {{.matches = is_bias, .momentum = 0.5}}}),
                      "SGD: momentum is 0.5 with Momentum::none");
    });
}

TEST_CASE("parameter groups: a run that is resumed from a checkpoint, on other ranks, goes on with the same bits") {
    const temporary_folder::Folder folder;
    const auto make = [](const auto& model) {
        return sk::AdamW{model,
                         {.learning_rate = 0.5},
                         {{.matches = [](auto, auto name) { return name == "weight"; }, .weight_decay = 0.5},
                          {.matches = is_bias, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 2.0}}};
    };
    const auto values = [&](auto& layer) {
        std::vector<double> all(42);
        layer.read_full(Weight{}, std::span(all).first(35));
        layer.read_full(Bias{}, std::span(all).subspan(35));
        return all;
    };
    std::vector<double> expected;
    sk::threads::run(Flat{3}, [&](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        auto optimizer = make(model);
        for (int t = 0; t < steps; ++t) {
            if (t == 2) {
                sk::checkpoint::save(rank, folder.file("run"), 2, sk::checkpoint::State{model, optimizer});
            }
            step(layer, optimizer, t);
        }
        const auto all = values(layer);
        if (rank.rank() == 0) { expected = all; }
    });
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto layer = toy::linear_layer<sk::ShardOptimizer>(rank);
        sk::Model model{layer};
        auto optimizer = make(model);
        step(layer, optimizer, 7);  // what it was before is gone
        sk::checkpoint::load(rank, folder.file("run/step-00000002"), sk::checkpoint::State{model, optimizer});
        CHECK(optimizer.steps(layer) == 2);
        for (int t = 2; t < steps; ++t) { step(layer, optimizer, t); }
        CHECK(values(layer) == expected);
    });
}

}  // namespace param_group_test
