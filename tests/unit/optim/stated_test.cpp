// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

// What a rank states for itself and all must state alike: where they differ every rank gets an error that says what
// differs, in the next call that they make anyway.

namespace sk = shardkit;

namespace stated_test {

using toy::Flat;

namespace {

/// What both ranks of two are told by `use(rank, layer, model)`, which ends with a call that moves the group's
/// values.
template <class Policy, class Use>
std::array<std::string, 2> said(const Use& use) {
    std::array<std::string, 2> texts;
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto layer = toy::linear_layer<Policy>(rank, "layer");
        sk::Model model{layer};
        texts[rank.rank()] = thrown_message<sk::CommError>([&] { use(rank, layer, model); });
    });
    return texts;
}

/// What all policies say; `first` and `second` are in each error of each rank.
template <class Use>
void check_said(std::string_view first, std::string_view second, const Use& use) {
    const auto check = [&](std::string_view policy, const std::array<std::string, 2>& texts) {
        for (const std::string& text : texts) {
            CAPTURE(policy);
            CAPTURE(text);
            CHECK(has(text, "the ranks disagree in call "));
            CHECK(has(text, std::string(" with ") + std::string(first)));
            CHECK(has(text, std::string(" with ") + std::string(second)));
            CHECK(has(text, "stated_test.cpp:"));
        }
    };
    check("NoShard", said<sk::NoShard>(use));
    check("ShardOptimizer", said<sk::ShardOptimizer>(use));
    check("ShardGradOp", said<sk::ShardGradOp>(use));
    check("FullShard", said<sk::FullShard>(use));
    check("HybridShard", said<sk::HybridShard<2>>(use));
}

template <class Model, class Layer>
auto reduced(const Model& model, Layer& layer) {
    sk::Accumulation accumulation{model};
    toy::add(accumulation, layer, 1);
    return sk::reduce(std::move(accumulation), sk::mean);
}
/// Two steps of an optimizer: the second one's reduction compares what the first one was.
template <class Optimizer, class Model, class Layer>
void train(Optimizer& optimizer, const Model& model, Layer& layer, int steps = 2) {
    for (int step = 0; step < steps; ++step) { optimizer.step(reduced(model, layer)); }
}

}  // namespace

TEST_CASE("a learning rate that differs between ranks") {
    check_said("learning rate 0.001 (stated at ", "learning rate 0.002 (stated at ",
               [](auto& rank, auto& layer, auto& model) {
                   sk::AdamW optimizer{model, {.learning_rate = rank.rank() == 0 ? 1e-3 : 2e-3}};
                   train(optimizer, model, layer);
               });
    check_said("learning rate 0.5 (", "learning rate 0.25 (", [](auto& rank, auto& layer, auto& model) {
        sk::SGD optimizer{model, {.learning_rate = 1}};
        train(optimizer, model, layer);
        optimizer.set_learning_rate(rank.rank() == 0 ? 0.5 : 0.25);
        train(optimizer, model, layer);
    });
}

TEST_CASE("hyper-parameters that differ between ranks") {
    const auto adamw = [](std::string_view name, auto change) {
        check_said(std::string(name) + " 0.5 (", std::string(name) + " 0.25 (",
                   [&](auto& rank, auto& layer, auto& model) {
                       sk::AdamWOptions options;
                       change(options) = rank.rank() == 0 ? 0.5 : 0.25;
                       sk::AdamW optimizer{model, options};
                       train(optimizer, model, layer);
                   });
    };
    adamw("beta1", [](auto& options) -> double& { return options.beta1; });
    adamw("beta2", [](auto& options) -> double& { return options.beta2; });
    adamw("epsilon", [](auto& options) -> double& { return options.epsilon; });
    adamw("weight_decay", [](auto& options) -> double& { return options.weight_decay; });
    check_said("momentum 0.5 (", "momentum 0.25 (", [](auto& rank, auto& layer, auto& model) {
        sk::SGD optimizer{model, {.rule = sk::Momentum::classical, .momentum = rank.rank() == 0 ? 0.5 : 0.25}};
        train(optimizer, model, layer);
    });
    check_said("momentum rule number 1 (", "momentum rule number 2 (", [](auto& rank, auto& layer, auto& model) {
        const auto rule = rank.rank() == 0 ? sk::Momentum::classical : sk::Momentum::nesterov;
        sk::SGD optimizer{model, {.rule = rule, .momentum = 0.5}};
        train(optimizer, model, layer);
    });
}

TEST_CASE("another kind of optimizer on one rank") {
    check_said("optimizer AdamW (", "optimizer Lion (", [](auto& rank, auto& layer, auto& model) {
        if (rank.rank() == 0) {
            sk::AdamW optimizer{model};
            train(optimizer, model, layer);
        } else {
            sk::Lion optimizer{model};
            train(optimizer, model, layer);
        }
    });
}

TEST_CASE("ParamGroups that differ between ranks") {
    const auto of_bias = [](std::string_view, std::string_view name) { return name == "bias"; };
    check_said("ParamGroup of 'layer' parameter 'bias' learning_rate_scale 0.5 (",
               "ParamGroup of 'layer' parameter 'bias' learning_rate_scale 0.5, weight_decay 0 (",
               [&](auto& rank, auto& layer, auto& model) {
                   std::vector<sk::ParamGroup> groups{{.matches = of_bias, .learning_rate_scale = 0.5}};
                   if (rank.rank() == 1) { groups[0].weight_decay = 0; }
                   sk::AdamW optimizer{model, {}, groups};
                   train(optimizer, model, layer);
               });
    check_said("ParamGroups none (", "ParamGroup of 'layer' parameter 'weight' none (",
               [&](auto& rank, auto& layer, auto& model) {
                   std::vector<sk::ParamGroup> groups;
                   if (rank.rank() == 1) { groups.push_back({.matches = of_bias, .beta1 = 0.5}); }
                   sk::AdamW optimizer{model, {}, groups};
                   train(optimizer, model, layer);
               });
}

TEST_CASE("max_norm that differs between ranks") {
    const auto clips = [](auto norm_of) {
        return [norm_of](auto& rank, auto& layer, auto& model) {
            sk::SGD optimizer{model, {}};
            for (int step = 0; step < 2; ++step) {
                auto gradients = reduced(model, layer);
                const auto norm = sk::global_norm(gradients);
                optimizer.step(std::move(gradients), norm_of(rank.rank(), norm));
            }
        };
    };
    check_said("max_norm 1 (", "max_norm 2 (",
               clips([](std::size_t rank, const auto& norm) { return sk::clip(norm, rank == 0 ? 1 : 2); }));
    check_said("max_norm 1 (", "max_norm none (", clips([](std::size_t rank, const auto& norm) {
                   return rank == 0 ? sk::clip(norm, 1) : sk::clip(norm, sk::unlimited);
               }));
}

TEST_CASE("an optimizer that was made anew on one rank") {
    check_said("step number 3 of the optimizer (", "step number 1 of the optimizer (",
               [](auto& rank, auto& layer, auto& model) {
                   sk::AdamW optimizer{model};
                   train(optimizer, model, layer);
                   if (rank.rank() == 0) {
                       train(optimizer, model, layer);
                   } else {
                       sk::AdamW other{model};
                       train(other, model, layer);
                   }
               });
}

TEST_CASE("a loss scale that differs between ranks") {
    const auto with = [](auto options) {
        return [options](auto& rank, auto& layer, auto& model) {
            sk::LossScale scale{rank, options(rank.rank())};
            sk::SGD optimizer{model, {}};
            for (int step = 0; step < 2; ++step) {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, 1);
                optimizer.step(sk::reduce(std::move(accumulation), sk::mean, scale));
            }
        };
    };
    const auto of = [](std::size_t rank, auto change, auto first, auto second) {
        sk::LossScaleOptions options;
        change(options) = rank == 0 ? first : second;
        return options;
    };
    check_said("loss scale's initial 2 (", "loss scale's initial 4 (", with([&](std::size_t rank) {
                   return of(
                       rank, [](auto& o) -> double& { return o.initial; }, 2., 4.);
               }));
    check_said("loss scale's growth_factor 2 (", "loss scale's growth_factor 4 (", with([&](std::size_t rank) {
                   return of(
                       rank, [](auto& o) -> double& { return o.growth_factor; }, 2., 4.);
               }));
    check_said("loss scale's backoff_factor 0.5 (", "loss scale's backoff_factor 0.25 (", with([&](std::size_t rank) {
                   return of(
                       rank, [](auto& o) -> double& { return o.backoff_factor; }, 0.5, 0.25);
               }));
    check_said("loss scale's growth_interval 7 (", "loss scale's growth_interval 8 (", with([&](std::size_t rank) {
                   return of(
                       rank, [](auto& o) -> std::uint32_t& { return o.growth_interval; }, 7U, 8U);
               }));
    check_said("loss scale none (", "loss scale's initial 65536 (", [](auto& rank, auto& layer, auto& model) {
        sk::LossScale scale{rank};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 1);
        auto gradients = rank.rank() == 0 ? sk::reduce(std::move(accumulation), sk::mean)
                                          : sk::reduce(std::move(accumulation), sk::mean, scale);
        static_cast<void>(sk::global_norm(gradients));
    });
    check_said("use of the loss scale number 2 at ", "use of the loss scale number 1 at ",
               [](auto& rank, auto& layer, auto& model) {
                   sk::SGD optimizer{model, {}};
                   std::optional<sk::LossScale> scale(std::in_place, rank);
                   for (int step = 0; step < 2; ++step) {
                       if (rank.rank() == 1) { scale.emplace(rank); }
                       sk::Accumulation accumulation{model};
                       toy::add(accumulation, layer, 1);
                       optimizer.step(sk::reduce(std::move(accumulation), sk::mean, *scale));
                   }
               });
}

TEST_CASE("a step on one rank only") {
    check_said("updates 1 of 'layer' (", "updates 0", [](auto& rank, auto& layer, auto& model) {
        sk::SGD optimizer{model, {}};
        auto gradients = reduced(model, layer);
        if (rank.rank() == 0) {
            optimizer.step(std::move(gradients));
        } else {
            const auto dropped = std::move(gradients);
        }
        static_cast<void>(sk::global_norm(reduced(model, layer)));
    });
}

TEST_CASE("what differed in an earlier step is not forgotten when ranks agree again before they compare") {
    const auto texts = said<sk::NoShard>([](auto& rank, auto& layer, auto& model) {
        sk::SGD optimizer{model, {.learning_rate = 1}};
        for (int step = 0; step < 3; ++step) {
            optimizer.set_learning_rate(step == 1 && rank.rank() == 1 ? 2 : 1);
            optimizer.step(sk::assume_reduced(model));
        }
        static_cast<void>(reduced(model, layer));
    });
    for (const std::string& text : texts) {
        CAPTURE(text);
        CHECK(has(text,
                  "rank 0 calls all_reduce sum of 64 fp64 for 'layer' gradients with earlier updates of 'layer'"));
    }
}

TEST_CASE("a norm tells which group was updated differently") {
    std::array<std::string, 2> texts;
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto first = toy::linear_layer<sk::NoShard>(rank, "first");
        auto second = toy::linear_layer<sk::NoShard>(rank, "second");
        sk::Model model{first, second};
        sk::Model part{second};
        sk::SGD optimizer{model, {}};
        sk::SGD of_part{part, {}};
        optimizer.step(sk::assume_reduced(model));
        if (rank.rank() == 1) { of_part.step(sk::assume_reduced(part)); }
        texts[rank.rank()] =
            thrown_message<sk::CommError>([&] { static_cast<void>(sk::global_norm(sk::assume_reduced(model))); });
    });
    for (const std::string& text : texts) {
        CAPTURE(text);
        CHECK(has(text, "for the global norm with updates 1 of 'second' (stated at "));
        CHECK(has(text, "for the global norm with updates 2 of 'second' (stated at "));
    }
}

TEST_CASE("a divisor that differed in a step that nobody compared") {
    const auto texts = said<sk::NoShard>([](auto& rank, auto& layer, auto& model) {
        sk::SGD optimizer{model, {}};
        optimizer.step(sk::assume_reduced(model, sk::divide_by(rank.rank() == 0 ? 2 : 4)));
        static_cast<void>(sk::assume_reduced(model));  // and is the same again
        static_cast<void>(reduced(model, layer));
    });
    for (const std::string& text : texts) {
        CAPTURE(text);
        CHECK(has(text, " with divisor 2 (stated at "));
        CHECK(has(text, " with divisor 4 (stated at "));
    }
}

TEST_CASE("values of replicas that differ between ranks") {
    const auto loads = [](auto& rank, auto& layer, auto& model) {
        std::vector<double> values(toy::outputs * toy::inputs, 1);
        if (rank.rank() == 1) { values[17] = 2; }
        layer.load(toy::Weight{}, values);
        static_cast<void>(reduced(model, layer));
        static_cast<void>(layer.unshard());
    };
    const auto initializes = [](auto& rank, auto& layer, auto& model) {
        layer.initialize([&](auto, std::string_view name, std::uint64_t) {
            return name == "weight" ? 1.0 / 35 : 1.0 + static_cast<double>(rank.rank());
        });
        static_cast<void>(reduced(model, layer));
        static_cast<void>(layer.unshard());
    };
    const auto check = [](const std::array<std::string, 2>& texts, std::string_view first, std::string_view second) {
        for (const std::string& text : texts) {
            CAPTURE(text);
            CHECK(has(text, first));
            CHECK(has(text, second));
        }
    };
    constexpr std::string_view weight = " with values of 'layer' parameter 'weight' of sum ";
    constexpr std::string_view bias = " with values of 'layer' parameter 'bias' of sum ";
    const auto both = [&](auto policy) {
        using Policy = decltype(policy);
        check(said<Policy>(loads), std::string(weight) + "35 (hash ", std::string(weight) + "36 (hash ");
        check(said<Policy>(initializes), std::string(bias) + "7 (hash ", std::string(bias) + "14 (hash ");
    };
    both(sk::NoShard{});
    both(sk::ShardOptimizer{});
    // A replica of each shard: here of everything.
    both(sk::HybridShard<1>{});
    // On one rank only.
    check(said<sk::NoShard>([](auto& rank, auto& layer, auto& model) {
              static_cast<void>(reduced(model, layer));
              if (rank.rank() == 1) { layer.load(toy::Bias{}, std::vector<double>(toy::outputs, 3)); }
              static_cast<void>(reduced(model, layer));
          }),
          std::string(bias) + "721 (hash ", std::string(bias) + "21 (hash ");
}

TEST_CASE("adopted memory whose values differ between ranks when they are first used together") {
    const auto use = [](double written, bool before) {
        std::array<std::string, 2> texts;
        sk::threads::run(Flat{2}, [&](auto& rank) {
            using Layer = toy::LinearLayer<sk::NoShard>;
            std::vector<double> memory(42, rank.rank() == 1 && before ? 2 : 1);
            auto layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {memory, {}});
            if (rank.rank() == 1) { memory[3] = written; }
            sk::Model model{layer};
            texts[rank.rank()] = thrown_message<sk::CommError>([&] { static_cast<void>(reduced(model, layer)); });
        });
        return texts;
    };
    for (const std::string& text : use(5, false)) {
        CAPTURE(text);
        CHECK(has(text, " with values of 'mine' parameter 'weight' of sum 35 (hash "));
        CHECK(has(text, " with values of 'mine' parameter 'weight' of sum 39 (hash "));
    }
    for (const std::string& text : use(1, false)) { CHECK(text == "nothing was thrown"); }
}

namespace {

/// Training that is right: nothing is thrown.
template <class Policy, class Mesh>
void check_legal(const Mesh& mesh) {
    CAPTURE(mesh.describe());
    sk::threads::run(mesh, [](auto& rank) {
        auto layer = toy::linear_layer<Policy>(rank, "layer");
        auto other = toy::linear_layer<Policy>(rank, "other");
        sk::Model model{layer, other};
        const auto of_bias = [](std::string_view path, std::string_view name) {
            return name == "bias" && path == "other";
        };
        sk::AdamW optimizer{
            model, {}, {{.matches = of_bias, .learning_rate_scale = 0.5, .weight_decay = 0, .beta1 = 0.5}}};
        sk::LossScale scale{rank, {.initial = 4, .growth_interval = 2}};
        for (int step = 0; step < 4; ++step) {
            optimizer.set_learning_rate(0.1 / (1 + step));
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            if (step == 2) {
                accumulation.skip(other);
            } else {
                toy::add(accumulation, other, 1);
            }
            auto gradients = sk::reduce(std::move(accumulation), sk::divide_by(1 + step), scale);
            const auto norm = sk::global_norm(gradients);
            optimizer.step(std::move(gradients),
                           step == 1 ? sk::clip(norm, sk::unlimited) : sk::clip(norm, 1 + step));
            std::vector<double> values(toy::outputs * toy::inputs);
            layer.read_full(toy::Weight{}, values);
            if (step == 0) { layer.load(toy::Weight{}, values); }
        }
    });
}
template <class Policy>
void check_legal() {
    for (const std::size_t world : {1U, 2U, 3U}) { check_legal<Policy>(Flat{world}); }
}

}  // namespace

TEST_CASE("what is the same on every rank may change with every step") {
    check_legal<sk::NoShard>();
    check_legal<sk::ShardOptimizer>();
    check_legal<sk::ShardGradOp>();
    check_legal<sk::FullShard>();
    check_legal<sk::HybridShard<2>>(Flat{2});
    check_legal<sk::HybridShard<2>>(Flat{4});
}

}  // namespace stated_test
