// SPDX-License-Identifier: Apache-2.0
// Several optimizers over one model, against their rules by hand in fp64.
#include <shardkit/optim/combined_optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace combined_optimizer_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

using Double = sk::Precision<double>;
constexpr double not_finite = std::numeric_limits<double>::infinity();

const auto is_weight = [](std::string_view, std::string_view name) { return name == "weight"; };
const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };
const sk::LionOptions lion_options{.learning_rate = 0.25, .weight_decay = 0.5};
const sk::AdamWOptions adamw_options{.learning_rate = 0.5};

/// Two layers whose weights Lion trains, and AdamW the rest.
struct Trainer {
    using Layer = sk::Sharded<toy::Linear, sk::DynamicPolicy, Double>;
    Layer first, second;
    sk::Model model{first, second};
    sk::Lion lion{model, lion_options, {{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}};
    sk::AdamW adamw{model, adamw_options, {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
    sk::CombinedOptimizer optimizer{model, {lion, adamw}};

    template <class Rank>
    explicit Trainer(Rank& rank, const sk::DynamicPolicy& policy = sk::DynamicPolicy(sk::FullShard{}))
        : first(toy::linear_layer(rank, "first", policy)), second(toy::linear_layer(rank, "second", policy)) {}

    auto accumulated(double factor) {
        sk::Accumulation accumulation{model};
        toy::add(accumulation, first, factor);
        toy::add(accumulation, second, 2 * factor);
        return accumulation;
    }
    std::vector<double> values() {
        std::vector<double> all(84);
        first.read_full(Weight{}, std::span(all).first(35));
        first.read_full(Bias{}, std::span(all).subspan(35, 7));
        second.read_full(Weight{}, std::span(all).subspan(42, 35));
        second.read_full(Bias{}, std::span(all).subspan(77));
        return all;
    }
};

/// What steps with these gradient factors make of the two layers, clipped to max_norm.
std::vector<double> by_hand(const std::vector<double>& factors, double max_norm) {
    std::vector<double> all(84);
    std::vector<double> states(2 * all.size());
    for (std::size_t i = 0; i < 42; ++i) { all[i] = all[42 + i] = static_cast<double>(i < 35 ? i : 100 + i - 35); }
    sk::rules::AdamWRule::Progress progress;
    for (const double factor : factors) {
        std::vector<double> gradients(84);
        double squares = 0;
        for (std::size_t i = 0; i < 84; ++i) {
            const std::size_t in_layer = i % 42;
            gradients[i] =
                (i < 42 ? 1 : 2) * factor * static_cast<double>(in_layer < 35 ? in_layer + 1 : in_layer - 35 + 1);
            squares += gradients[i] * gradients[i];
        }
        const double coefficient = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
        sk::rules::AdamWRule::advance(progress, adamw_options);
        const auto adamw = sk::rules::AdamWRule::update<double>(progress, adamw_options, coefficient);
        const auto lion = sk::rules::lion_update<double>(lion_options, coefficient);
        for (std::size_t i = 0; i < 84; ++i) {
            if (i % 42 < 35) {
                lion(all[i], states[i], gradients[i]);
            } else {
                adamw(all[i], states[i], states[84 + i], gradients[i]);
            }
        }
    }
    return all;
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
    double most = a.size() == b.size() ? 0 : not_finite;
    for (std::size_t i = 0; i < a.size(); ++i) { most = std::max(most, std::abs(a[i] - b[i])); }
    return most;
}

const std::vector<double> factors{0.5, -2, 3, 0.25};

}  // namespace

TEST_CASE("combined optimizers: each parameter by its rule, one clip for all, whatever the policy") {
    const std::vector<double> expected = by_hand(factors, 4);
    for (const auto& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                               sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
                               sk::DynamicPolicy(sk::HybridShard<2>{})}) {
        sk::threads::run(Flat{4}, [&](auto& rank) {
            Trainer trainer(rank, policy);
            Trainer longer(rank, policy);
            for (const double factor : factors) {
                trainer.optimizer.step(trainer.accumulated(factor), {.max_norm = 4});
                auto reduced = sk::reduce(longer.accumulated(factor), sk::mean);
                const auto norm = sk::global_norm(reduced);
                longer.optimizer.step(std::move(reduced), sk::clip(norm, 4));
            }
            const auto values = trainer.values();
            CHECK(apart(values, expected) < 1e-12);
            CHECK(longer.values() == values);
            CHECK(trainer.optimizer.steps(trainer.first) == factors.size());
        });
    }
}

TEST_CASE("combined optimizers: a loss scale is divided out of every part, and adapts once in a step") {
    // Powers of two, which leave the bits as they are. The scale grows with each clean step.
    sk::threads::run(Flat{2}, [](auto& rank) {
        Trainer trainer(rank);
        sk::LossScale scale{rank, {.initial = 4, .growth_interval = 1}};
        double now = 4;
        for (const double factor : factors) {
            trainer.optimizer.step(trainer.accumulated(not_finite), {.max_norm = 4, .loss_scale = &scale});
            CHECK(scale.skipped());
            CHECK(scale.value() == now / 2);
            trainer.optimizer.step(trainer.accumulated(factor * now / 2), {.max_norm = 4, .loss_scale = &scale});
            CHECK_FALSE(scale.skipped());
            CHECK(scale.value() == now);
            trainer.optimizer.step(trainer.accumulated(0), {.loss_scale = &scale});
            now *= 2;
            CHECK(scale.value() == now);
        }
        std::vector<double> with_zeros;
        for (const double factor : factors) { with_zeros.insert(with_zeros.end(), {factor, 0}); }
        CHECK(apart(trainer.values(), by_hand(with_zeros, 4)) < 1e-12);
        CHECK(trainer.optimizer.steps(trainer.second) == 8);
    });
}

TEST_CASE("combined optimizers: a schedule that was recorded is followed") {
    const std::vector<double> expected = by_hand(factors, 4);
    sk::threads::run(Flat{2}, [&](auto& rank) {
        Trainer trainer(rank);
        const auto step = [&](double factor) {
            trainer.optimizer.step(trainer.accumulated(factor), {.max_norm = 4});
        };
        const sk::Schedule schedule = sk::schedule::record(trainer.model, [&] { step(factors[0]); });
        std::size_t updates = 0;
        for (const auto& operation : schedule.ops()) {
            updates += operation.act == sk::schedule::Act::update ? 1U : 0U;
        }
        CHECK(updates == 2);
        {
            const auto following = sk::schedule::follow(trainer.model, schedule);
            for (std::size_t i = 1; i < factors.size(); ++i) { step(factors[i]); }
        }
        CHECK(apart(trainer.values(), expected) < 1e-12);
    });
}

TEST_CASE("combined optimizers: states of its own parameters alone, none for a group without any") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        Trainer trainer(rank);
        for (const auto& shard : trainer.lion.shards()) { CHECK(shard.parameter == "weight"); }
        for (const auto& shard : trainer.adamw.shards()) { CHECK(shard.parameter == "bias"); }
        CHECK(trainer.optimizer.shards().size() == trainer.lion.shards().size() + trainer.adamw.shards().size());
        const auto of_first = [](std::string_view path, std::string_view) { return path == "first"; };
        sk::SGD sgd{trainer.model,
                    {.rule = sk::Momentum::classical, .momentum = 0.5},
                    {{.matches = of_first, .updated_by = sk::UpdatedBy::another}}};
        for (const auto& shard : sgd.shards()) { CHECK(shard.path == "second"); }
        CHECK(sgd.steps(trainer.first) == 0);

        // Parts of whole groups, of which one is over the group alone.
        sk::Model firsts{trainer.first};
        sk::Lion lion{firsts, lion_options};
        sk::CombinedOptimizer optimizer{trainer.model, {sgd, lion}};
        optimizer.step(trainer.accumulated(1));
        CHECK(sgd.steps(trainer.second) == 1);
        CHECK(sgd.steps(trainer.first) == 0);
        CHECK(optimizer.steps(trainer.first) == 1);
        CHECK(optimizer.steps(trainer.second) == 1);
        // Whoever has whole groups may step alone.
        sk::Accumulation accumulation{firsts};
        toy::add(accumulation, trainer.first, 1);
        lion.step(std::move(accumulation));
        CHECK(optimizer.steps(trainer.first) == 2);
    });
}

TEST_CASE("combined optimizers: what none or two update, and a part that steps alone, is refused by name") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        Trainer trainer(rank);
        sk::SGD all{trainer.model, {}};
        CHECK_INVALID_ARGUMENT(
            (sk::CombinedOptimizer{trainer.model, {trainer.lion}}),
            "CombinedOptimizer: no part updates 'first.bias', expected one, or a Frozen parameter");
        CHECK_INVALID_ARGUMENT((sk::CombinedOptimizer{trainer.model, {trainer.adamw, all}}),
                               "CombinedOptimizer: 'first.bias' is updated by parts 0 and 1; expected a ParamGroup "
                               "with UpdatedBy::another in all but one");
        CHECK_INVALID_ARGUMENT((sk::CombinedOptimizer{trainer.model, {all, all}}),
                               "CombinedOptimizer: 'first.weight' is updated by parts 0 and 1; expected a ParamGroup "
                               "with UpdatedBy::another in all but one");
        sk::Model seconds{trainer.second};
        CHECK_INVALID_ARGUMENT((sk::CombinedOptimizer{seconds, {all}}),
                               "CombinedOptimizer: 'first' of part 0 is no group of the model");
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::SGD{trainer.model,
                              {},
                              {{.matches = is_bias, .weight_decay = 0.5, .updated_by = sk::UpdatedBy::another}}};
                  }),
                  "ParamGroup: hyper-parameters are given for parameters that another optimizer updates"));

        auto accumulation = trainer.accumulated(1);
        const std::string alone =
            "optimizer step: 'first.weight' is another optimizer's (ParamGroup::updated_by), and the gradients are "
            "consumed: expected the step of a CombinedOptimizer of both";
        CHECK_USAGE_ERROR(trainer.adamw.step(std::move(accumulation)), alone);
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        CHECK_USAGE_ERROR(trainer.adamw.step(std::move(reduced)), alone);
        trainer.optimizer.step(std::move(reduced));
        CHECK(apart(trainer.values(), by_hand({1}, not_finite)) < 1e-12);
        CHECK_USAGE_ERROR(trainer.optimizer.set_learning_rate(1),
                          "CombinedOptimizer: set_learning_rate of several optimizers; expected that of a part");
        CHECK_THROWS_AS(static_cast<void>(trainer.optimizer.learning_rate()), sk::UsageError);
    });
}

TEST_CASE(
    "combined optimizers: a part that was moved from or assigned to is refused before a step changes anything") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        Trainer trainer(rank);
        const auto refused = [](std::string part) {
            return "CombinedOptimizer: part " + part +
                   " was moved from or assigned to since it was made one; expected parts that stay where they are: "
                   "make "
                   "the CombinedOptimizer anew";
        };
        auto accumulation = trainer.accumulated(1);
        sk::Lion away = std::move(trainer.lion);
        CHECK_USAGE_ERROR(trainer.optimizer.step(std::move(accumulation)), refused("0"));
        trainer.lion = std::move(away);
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        away = sk::Lion(trainer.model, lion_options);  // of the biases too
        std::swap(away, trainer.lion);
        CHECK_USAGE_ERROR(trainer.optimizer.step(std::move(reduced)), refused("0"));
        std::swap(away, trainer.lion);
        trainer.optimizer.step(std::move(reduced));
        CHECK(apart(trainer.values(), by_hand({1}, not_finite)) < 1e-12);
    });
}

TEST_CASE("combined optimizers: a factor of their learning rates is that of every part, or of none") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        Trainer by_factor(rank);
        Trainer by_parts(rank);
        const double lion = by_factor.lion.options().learning_rate;
        const double adamw = by_factor.adamw.options().learning_rate;
        for (const double factor : {0.0, 0.5, 2.0, 0.0, 1.0}) {
            by_factor.optimizer.set_learning_rate_factor(factor);
            by_parts.lion.set_learning_rate(factor * lion);
            by_parts.adamw.set_learning_rate(factor * adamw);
            by_factor.optimizer.step(by_factor.accumulated(1));
            by_parts.optimizer.step(by_parts.accumulated(1));
            CHECK(by_factor.values() == by_parts.values());
            CHECK(by_factor.adamw.options() == by_parts.adamw.options());
        }
        by_factor.adamw.set_learning_rate(1e30);
        CHECK_THROWS_AS(by_factor.optimizer.set_learning_rate_factor(4), std::invalid_argument);
        CHECK(by_factor.lion.learning_rate() == lion);
    });
}

TEST_CASE("combined optimizers: ranks that differ in a part are told which, with both values") {
    const auto said = [](auto differ, std::string_view first, std::string_view second) {
        sk::threads::run(Flat{2}, [&](auto& rank) {
            const std::string text = thrown_message<sk::CommError>([&] {
                Trainer trainer(rank);
                differ(trainer, rank.rank());
                for (int step = 0; step < 2; ++step) { trainer.optimizer.step(trainer.accumulated(1)); }
            });
            CAPTURE(text);
            CHECK(has(text, "the ranks disagree in call "));
            CHECK(has(text, first));
            CHECK(has(text, second));
        });
    };
    said([](Trainer& trainer, std::size_t rank) { trainer.lion.set_learning_rate(rank == 0 ? 0.5 : 0.25); },
         "with learning rate of optimizer 0 0.5 (", "with learning rate of optimizer 0 0.25 (");
    said([](Trainer& trainer, std::size_t rank) { trainer.adamw.set_learning_rate(rank == 0 ? 0.5 : 0.25); },
         "with learning rate of optimizer 1 0.5 (", "with learning rate of optimizer 1 0.25 (");
    said([](Trainer& trainer,
            std::size_t rank) { trainer.adamw.set_options({.learning_rate = 1, .beta2 = rank == 0 ? 0.5 : 0.25}); },
         "with beta2 of optimizer 1 0.5 (", "with beta2 of optimizer 1 0.25 (");
    sk::threads::run(Flat{2}, [&](auto& rank) {
        const std::string text = thrown_message<sk::CommError>([&] {
            auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
            sk::Model model{layer};
            const auto one = [&](std::string_view, std::string_view name) {
                return (name == "weight") == (rank.rank() == 0);
            };
            const auto other = [&](std::string_view path, std::string_view name) { return !one(path, name); };
            sk::SGD a{model, {}, {{.matches = one, .updated_by = sk::UpdatedBy::another}}};
            sk::SGD b{model, {}, {{.matches = other, .updated_by = sk::UpdatedBy::another}}};
            sk::CombinedOptimizer optimizer{model, {a, b}};
            for (int step = 0; step < 2; ++step) {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, 1);
                optimizer.step(std::move(accumulation));
            }
        });
        CAPTURE(text);
        CHECK(has(text, "with ParamGroup of 'layer' parameter 'weight' another optimizer's ("));
        CHECK(has(text, "with ParamGroup of 'layer' parameter 'weight' none ("));
    });
}

TEST_CASE("combined optimizers: ParamGroups of a part that change later are compared as they are then") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        const std::string text = thrown_message<sk::CommError>([&] {
            auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
            sk::Model model{layer};
            std::vector<sk::ParamGroup> groups{{.matches = is_bias, .updated_by = sk::UpdatedBy::another},
                                               {.matches = is_weight, .weight_decay = 0.5}};
            sk::SGD weights{model, {}, groups};
            sk::SGD biases{model, {}, {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
            sk::CombinedOptimizer optimizer{model, {weights, biases}};
            const auto step = [&] {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, 1);
                optimizer.step(std::move(accumulation));
            };
            step();
            step();
            groups[1].weight_decay = rank.rank() == 0 ? 0.25 : 0.125;
            weights.set_param_groups(groups);
            step();
            step();
        });
        CAPTURE(text);
        CHECK(has(text, "with ParamGroup of 'layer' parameter 'weight' learning_rate_scale 1, weight_decay 0.25 ("));
        CHECK(has(text, "with ParamGroup of 'layer' parameter 'weight' learning_rate_scale 1, weight_decay 0.125 ("));
    });
}

TEST_CASE("combined optimizers: a run that is resumed on other ranks goes on, and each tensor is in the files once") {
    const std::vector<double> expected = by_hand(factors, 4);
    const temporary_folder::Folder folder;
    sk::threads::run(Flat{3}, [&](auto& rank) {
        Trainer trainer(rank);
        for (std::size_t i = 0; i < 2; ++i) {
            trainer.optimizer.step(trainer.accumulated(factors[i]), {.max_norm = 4});
        }
        const sk::checkpoint::State state{trainer.model, trainer.optimizer};
        sk::checkpoint::save(rank, folder.file("run"), 2, state);
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::checkpoint::State{trainer.model, trainer.lion}.add(trainer.adamw);
                  }),
                  "'first' of the optimizer is another optimizer's too: expected one for each group, as a "
                  "CombinedOptimizer is"));
    });
    const auto names = [&](const std::string& file) {
        std::string all;
        const sk::safetensors::File opened(folder.file("run/step-00000002/state/" + file));
        for (const auto& tensor : opened.tensors()) { all += tensor.name + " "; }
        return all;
    };
    CHECK(names("exp_avg.safetensors") == "first.weight first.bias second.weight second.bias ");
    CHECK(names("exp_avg_sq.safetensors") == "first.bias second.bias ");
    CHECK(names("scalars.safetensors") == "tensors.steps tensors.beta1_power tensors.beta2_power ");
    sk::threads::run(Flat{2}, [&](auto& rank) {
        Trainer trainer(rank, sk::DynamicPolicy(sk::ShardOptimizer{}));
        const sk::checkpoint::State state{trainer.model, trainer.optimizer};
        CHECK(sk::checkpoint::load(rank, folder.file("run/step-00000002"), state).left.empty());
        CHECK(trainer.optimizer.steps(trainer.first) == 2);
        for (std::size_t i = 2; i < factors.size(); ++i) {
            trainer.optimizer.step(trainer.accumulated(factors[i]), {.max_norm = 4});
        }
        CHECK(apart(trainer.values(), expected) < 1e-12);
    });
}

TEST_CASE("combined optimizers: two of one kind, whose running products differ, go on from a checkpoint") {
    const temporary_folder::Folder folder;
    const auto trained = [&](std::size_t ranks, int from, int until) {
        std::vector<double> all(42);
        sk::threads::run(Flat{ranks}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
            sk::Model model{layer};
            sk::AdamW weights{model,
                              {.learning_rate = 0.5, .beta1 = 0.5},
                              {{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}};
            sk::AdamW biases{model,
                             {.learning_rate = 0.5, .beta1 = 0.75},
                             {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
            sk::CombinedOptimizer optimizer{model, {weights, biases}};
            const sk::checkpoint::State state{model, optimizer};
            if (from > 0) { sk::checkpoint::load(rank, folder.file("run/step-00000002"), state); }
            for (int step = from; step < until; ++step) {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, step % 2 == 0 ? 0.5 : -2);
                optimizer.step(std::move(accumulation));
            }
            if (until == 2) { sk::checkpoint::save(rank, folder.file("run"), 2, state); }
            std::vector<double> own(42);
            layer.read_full(Weight{}, std::span(own).first(35));
            layer.read_full(Bias{}, std::span(own).subspan(35));
            if (rank.rank() == 0) { all = own; }
        });
        return all;
    };
    const std::vector<double> straight = trained(1, 0, 5);
    trained(3, 0, 2);
    CHECK(trained(2, 2, 5) == straight);
}

TEST_CASE("combined optimizers: of several precisions, with frozen parameters, skipped groups and parts of parts") {
    // Each parameter of its own group, or sharing one, gets the same bits: an optimizer of its own made them.
    using Half = sk::Sharded<sk::TensorList<sk::bf16>, sk::DynamicPolicy>;
    using Rounding = sk::ShardedOptions<sk::TensorList<sk::bf16>, sk::DynamicPolicy>;
    using Single = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;
    const auto trained = [](bool combined, std::size_t ranks) {
        std::vector<float> values;
        sk::threads::run(Flat{ranks}, [&](auto& rank) {
            const sk::DynamicPolicy policy{sk::FullShard{}};
            const sk::TensorList<sk::bf16> halves{{"w", {9, 4}}, {"frozen", {3}, {.frozen = true}}, {"b", {5}}};
            Half half(rank, "half", halves, {policy});
            Half rounded(rank, "rounded", halves,
                         Rounding{.policy = policy,
                                  .master = sk::MasterWeights::none,
                                  .stochastic_rounding = sk::StochasticRounding{7}});
            Single single(rank, "single", {{"w", {9, 4}}, {"b", {5}}}, {policy});
            Single rare(rank, "rare", {{"w", {3}}}, {policy});
            sk::Model model{half, rounded, single, rare};
            model.initialize([](auto, auto, auto i) { return 1 + static_cast<double>(i) / 4; });
            const auto is_w = [](auto, std::string_view name) { return name == "w"; };
            const auto is_b = [](auto, std::string_view name) { return name == "b"; };
            const auto all = [](auto, auto) { return true; };
            const sk::SgdOptions own{.learning_rate = 0.25, .rule = sk::Momentum::classical, .momentum = 0.5};
            sk::SGD whole{model, own};
            sk::SGD w{model, own, {{.matches = is_b, .updated_by = sk::UpdatedBy::another}}};
            sk::SGD b{model, own, {{.matches = is_w, .updated_by = sk::UpdatedBy::another}}};
            sk::SGD none{model, own, {{.matches = all, .updated_by = sk::UpdatedBy::another}}};
            sk::CombinedOptimizer inner{model, {b, none, w}};
            sk::CombinedOptimizer optimizer{model, {inner}};
            sk::LossScale scale{rank, {.initial = 4, .growth_interval = 1}};
            for (int step = 0; step < 4; ++step) {
                sk::Accumulation accumulation{model};
                const auto add = [&](auto& layer) {
                    auto gradients = accumulation.gradients(layer);
                    for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                        for (auto& g : gradients.view(p)) {
                            g = static_cast<std::remove_cvref_t<decltype(g)>>(0.75F * static_cast<float>(step + 1));
                        }
                    }
                    accumulation.add(std::move(gradients));
                };
                add(half);
                add(rounded);
                add(single);
                if (step % 2 == 0) {
                    accumulation.skip(rare);
                } else {
                    add(rare);
                }
                sk::Optimizer& used = combined ? static_cast<sk::Optimizer&>(optimizer) : whole;
                used.step(std::move(accumulation), {.max_norm = 1, .loss_scale = &scale});
            }
            if (combined) {
                CHECK(optimizer.steps(half) == 4);
                CHECK(optimizer.steps(rare) == 2);
                CHECK(none.shards().empty());
            }
            std::vector<float> own_values;
            const auto read = [&](auto& layer) {
                const auto window = layer.unshard();
                for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                    for (const auto value : window.view(p)) { own_values.push_back(static_cast<float>(value)); }
                }
            };
            read(half);
            read(rounded);
            read(single);
            read(rare);
            if (rank.rank() == 0) { values = own_values; }
        });
        return values;
    };
    const std::vector<float> expected = trained(false, 2);
    CHECK(trained(true, 2) == expected);
    CHECK(trained(true, 3) == trained(false, 3));
}

TEST_CASE("combined optimizers: states that one optimizer saved go on in parts, and the other way round") {
    const temporary_folder::Folder folder;
    const sk::AdamWOptions own{.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75};
    const auto trained = [&](bool saves_parts, bool loads_parts, bool resumes) {
        std::vector<double> all(42);
        const auto run = [&](std::size_t ranks, bool parts, int from, int until) {
            sk::threads::run(Flat{ranks}, [&](auto& rank) {
                auto layer = toy::linear_layer<sk::FullShard>(rank, "layer");
                sk::Model model{layer};
                sk::AdamW whole{model, own};
                sk::AdamW w{model, own, {{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}};
                sk::AdamW b{model, own, {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
                sk::CombinedOptimizer both{model, {w, b}};
                auto& optimizer = parts ? static_cast<sk::Optimizer&>(both) : whole;
                const sk::checkpoint::State state{model, optimizer};
                if (from > 0) {
                    CHECK(sk::checkpoint::load(rank, folder.file("run/step-00000002"), state).left.empty());
                }
                for (int step = from; step < until; ++step) {
                    sk::Accumulation accumulation{model};
                    toy::add(accumulation, layer, step % 2 == 0 ? 0.5 : -2);
                    optimizer.step(std::move(accumulation));
                }
                if (until == 2) { sk::checkpoint::save(rank, folder.file("run"), 2, state, {.replace = true}); }
                std::vector<double> values(42);
                layer.read_full(Weight{}, std::span(values).first(35));
                layer.read_full(Bias{}, std::span(values).subspan(35));
                if (rank.rank() == 0) { all = values; }
            });
        };
        run(3, saves_parts, 0, resumes ? 2 : 5);
        if (resumes) { run(2, loads_parts, 2, 5); }
        return all;
    };
    const std::vector<double> straight = trained(false, false, false);
    CHECK(trained(true, true, false) == straight);
    CHECK(trained(true, false, true) == straight);
    CHECK(trained(false, true, true) == straight);
}

TEST_CASE("combined optimizers: a new part makes its own states whole and leaves another's that a load has torn") {
    const temporary_folder::Folder folder;
    sk::threads::run(Flat{2}, [&](auto& rank) {
        Trainer trainer(rank);
        trainer.optimizer.step(trainer.accumulated(1));
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{trainer.model, trainer.optimizer});
    });
    {
        // One byte of a state of the bias is not what was written.
        const std::string path = folder.file("run/step-00000001/state/exp_avg_sq.safetensors");
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(-3, std::ios::end);
        const char byte = static_cast<char>(file.get());
        file.seekp(-3, std::ios::end);
        file.put(static_cast<char>(byte ^ 1));
    }
    sk::threads::run(Flat{2}, [&](auto& rank) {
        Trainer trainer(rank);
        const sk::checkpoint::State state{trainer.model, trainer.optimizer};
        CHECK_THROWS_AS(sk::checkpoint::load(rank, folder.file("run/step-00000001"), state), sk::FileError);
        trainer.model.initialize([](auto, auto, auto) { return 1.0; });
        sk::Lion lion{trainer.model, lion_options, {{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}};
        CHECK(has(thrown_message<sk::UsageError>([&] { trainer.accumulated(1); }), "ended with an error before '"));
        sk::AdamW adamw{trainer.model, adamw_options, {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
        sk::CombinedOptimizer optimizer{trainer.model, {lion, adamw}};
        optimizer.step(trainer.accumulated(1));
    });
}

}  // namespace combined_optimizer_test
