// SPDX-License-Identifier: Apache-2.0
// Betas, epsilon and momentum of a parameter group's own.
#include <shardkit/optim/param_group.hpp>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
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

TEST_CASE("parameter groups: one that has no effect is refused, with what it gives and the model's names") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        const auto misspelt = [](auto, std::string_view name) { return name == "biases"; };
        const std::string nothing =
            " matches no parameter of the model, expected some of 'layer.weight', 'layer.bias' (";
        CHECK_REFUSED((sk::AdamW{model, {}, {{.matches = misspelt, .weight_decay = 0}}}),
                      "optimizer: ParamGroup 0 (learning_rate_scale 1, weight_decay 0)" + nothing);
        CHECK_REFUSED((sk::SGD{model,
                               {.rule = sk::Momentum::classical, .momentum = 0.5},
                               {{.matches = is_bias, .weight_decay = 0}, {.matches = misspelt, .momentum = 0.25}}}),
                      "optimizer: ParamGroup 1 (learning_rate_scale 1, momentum 0.25)" + nothing);
        CHECK_REFUSED((sk::Lion{model, {}, {{.matches = misspelt, .updated_by = sk::UpdatedBy::another}}}),
                      "optimizer: ParamGroup 0 (another optimizer's)" + nothing);
        // The first that matches decides.
        const auto all = [](auto, auto) { return true; };
        CHECK_REFUSED((sk::AdamW{model, {}, {{.matches = all}, {.matches = is_bias, .weight_decay = 0}}}),
                      "optimizer: ParamGroup 1 (learning_rate_scale 1, weight_decay 0) matches only parameters that "
                      "ParamGroup 0 or another earlier one matches, of which the first decides");
        sk::AdamW reversed{model, {}, {{.matches = is_bias, .weight_decay = 0}, {.matches = all, .beta1 = 0.5}}};
        CHECK_REFUSED(reversed.set_param_groups({{.matches = is_bias, .weight_decay = 0},
                                                 {.matches = all, .beta1 = 0.5},
                                                 {.matches = misspelt, .beta2 = 0.5}}),
                      "optimizer: ParamGroup 2 (learning_rate_scale 1, beta2 0.5)" + nothing);
        CHECK(reversed.param_groups().size() == 2);
        // Both parts of a Muon are given the groups of all parameters.
        CHECK_REFUSED((sk::Muon{model, {}, {}, {}, {{.matches = misspelt, .weight_decay = 0}}}),
                      "optimizer: ParamGroup 0 (learning_rate_scale 1, weight_decay 0)" + nothing);
        sk::Muon of_both{model,
                         {},
                         {},
                         {},
                         {{.matches = is_bias, .beta2 = 0.5},
                          {.matches = [](auto, auto name) { return name == "weight"; }, .momentum = 0.5}}};
        using List = sk::TensorList<float>;
        sk::Sharded<List, sk::FullShard> matrix{rank, "matrix", List{{"weight", {2, 3}}}};
        sk::Model matrices{matrix};
        sk::Muon alone{matrices};
    });
}

TEST_CASE("parameter groups: of a large model the refusal names some parameters") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        std::vector<sk::NamedTensor> tensors;
        for (int i = 0; i < 40; ++i) { tensors.emplace_back("t" + std::to_string(i), std::vector<std::size_t>{2}); }
        using List = sk::TensorList<float>;
        sk::Sharded<List, sk::NoShard> layer{rank, "layer", List(tensors)};
        sk::Model model{layer};
        CHECK_REFUSED((sk::AdamW{model, {}, {{.matches = [](auto, auto) { return false; }, .weight_decay = 0}}}),
                      "'layer.t30', 'layer.t31' and 8 more (");
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

TEST_CASE("parameter groups: a filter owns a copy of any function, and is empty without one") {
    using Function = std::function<bool(std::string_view, std::string_view)>;
    const std::string name = "a name that is long enough for the heap";
    sk::ParamGroup first{.matches = [name](auto, auto parameter) { return parameter == name; }};
    const sk::ParamGroup second = first;
    sk::ParamGroup third = std::move(first);
    third = second;
    CHECK(second.matches("group", name));
    CHECK_FALSE(third.matches("group", "weight"));
    CHECK_FALSE(first.matches);  // NOLINT(bugprone-use-after-move): that is what is asked

    CHECK_FALSE(sk::ParameterFilter(Function()));
    CHECK_FALSE(sk::ParameterFilter(static_cast<bool (*)(std::string_view, std::string_view)>(nullptr)));
    const sk::ParameterFilter filter = Function(is_bias);
    const Function back = filter;
    CHECK(back("group", "bias"));
    CHECK_FALSE(back("group", "weight"));
    CHECK_REFUSED(sk::validate(sk::ParamGroup{}, sk::SourceLocation::current()), "matches is empty");
}

}  // namespace param_group_test
