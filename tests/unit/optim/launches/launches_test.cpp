// SPDX-License-Identifier: Apache-2.0
// How many launches a norm and a step take, and that it makes no difference to the numbers.
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/core/bf16.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "counting_device.hpp"

namespace sk = shardkit;

namespace launches_test {

using counting::launches;
using counting::on_device;

namespace {

template <class T>
using Layer = sk::Sharded<sk::TensorList<T>, sk::FullShard>;

/// Ten parameters that lie side by side: their sizes are multiples of every alignment.
template <class T>
sk::TensorList<T> ten_tensors() {
    std::vector<sk::NamedTensor> tensors;
    for (int i = 0; i < 10; ++i) {
        tensors.emplace_back("t" + std::to_string(i), std::initializer_list<std::size_t>{64});
    }
    return sk::TensorList<T>(std::move(tensors));
}
template <class T, class Rank>
void add_layers(std::vector<Layer<T>>& layers, Rank& rank, std::size_t count, const std::string& path,
                const sk::TensorList<T>& tensors) {
    for (std::size_t i = 0; i < count; ++i) {
        layers.emplace_back(rank, path + std::to_string(layers.size()), tensors);
        layers.back().initialize([](auto, auto, std::size_t e) { return 0.5 + static_cast<double>(e % 7) / 8; });
    }
}

/// Launches of a norm and a clipped step of `small` groups of ten parameters and `large` ones of 32 MiB.
counting::Launches launches_of_step(std::size_t small, std::size_t large) {
    counting::Launches counted;
    on_device([&](auto& rank) {
        std::vector<Layer<float>> layers;
        add_layers(layers, rank, large / 2, "large.", sk::TensorList<float>{{"w", {std::size_t{8} << 20U}}});
        add_layers(layers, rank, small, "small.", ten_tensors<float>());
        add_layers(layers, rank, large - large / 2, "large.", sk::TensorList<float>{{"w", {std::size_t{8} << 20U}}});
        sk::Model model{layers};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        for (int step = 0; step < 3; ++step) {
            auto reduced = sk::assume_reduced(model);
            launches = {};
            const auto norm = sk::global_norm(reduced);
            optimizer.step(std::move(reduced), sk::clip(norm, 1));
            counted = launches;
            CHECK((step == 0 || counted.copies == 0));
        }
    });
    return counted;
}

/// What a few steps leave: every parameter, norm and loss scale.
template <class MakeOptimizer>
std::vector<double> trained(bool device, const MakeOptimizer& make_optimizer) {
    std::vector<double> left;
    const auto train = [&](auto& rank) {
        std::vector<Layer<float>> floats;
        std::vector<Layer<sk::bf16>> halves;
        std::vector<Layer<double>> doubles;
        std::vector<Layer<float>> more;
        add_layers(floats, rank, 4, "floats.", ten_tensors<float>());
        add_layers(floats, rank, 1, "frozen.", sk::TensorList<float>{{"w", {40}, {.frozen = true}}});
        add_layers(halves, rank, 3, "halves.",
                   sk::TensorList<sk::bf16>{{"w", {33, 3}}, {"b", {33}, {.decay = false}}});
        add_layers(doubles, rank, 2, "doubles.", ten_tensors<double>());
        add_layers(more, rank, 2, "more.",
                   sk::TensorList<float>{{"a", {64}}, {"f", {64}, {.frozen = true}}, {"b", {70}}});
        sk::Model model{floats, halves, doubles, more};
        auto optimizer = make_optimizer(model);
        const auto for_each_layer = [&](const auto& f) {
            for (auto& layer : floats) { f(layer); }
            for (auto& layer : halves) { f(layer); }
            for (auto& layer : doubles) { f(layer); }
            for (auto& layer : more) { f(layer); }
        };
        sk::LossScale loss_scale(rank, {.initial = 8, .growth_interval = 2});
        for (std::size_t step = 0; step < 6; ++step) {
            sk::Accumulation accumulation{model};
            std::size_t group = 0;
            const auto add = [&](auto& layer) {
                // Another group is left out of each step; step 3 overflows.
                if (!layer.trainable()) { return; }
                if (group++ % 5 == step) {
                    accumulation.skip(layer);
                    return;
                }
                auto handle = accumulation.gradients(layer);
                for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                    auto view = handle.view(p);
                    for (std::size_t i = 0; i < view.size(); ++i) {
                        const double value = step == 3 ? 1e300 * 1e300 : 0.01 * static_cast<double>(i % 9 + group);
                        using Gradient = std::remove_cvref_t<decltype(view[0])>;
                        view[i] = static_cast<Gradient>(static_cast<sk::Arithmetic<Gradient>>(value));
                    }
                }
                accumulation.add(std::move(handle));
            };
            for_each_layer(add);
            auto reduced = sk::reduce(std::move(accumulation), sk::mean, loss_scale);
            const auto norm = sk::global_norm(reduced);
            left.push_back(step == 3 ? 0 : norm.value());
            optimizer.step(std::move(reduced), sk::clip(norm, 0.5));
            left.push_back(loss_scale.value());
        }
        for_each_layer([&](auto& layer) {
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                std::vector<double> values(layer.parameters()[p].shape.numel());
                layer.read_full(p, std::span<double>(values));
                left.insert(left.end(), values.begin(), values.end());
            }
        });
        left.push_back(static_cast<double>(optimizer.steps(floats[0])));
        left.push_back(static_cast<double>(optimizer.steps(more[1])));
    };
    device ? on_device(train) : sk::self::run(sk::DeviceMesh<1>{}, train);
    return left;
}

template <class MakeOptimizer>
void check_same_everywhere(const MakeOptimizer& make_optimizer) {
    const std::vector<double> alone = trained(false, make_optimizer);
    launches = {};
    CHECK(trained(true, make_optimizer) == alone);
    CHECK(launches.batches > 0);
    // Of six steps one overflows, and groups 0 and 8 (of the ten that are trained) sit one out each.
    CHECK(alone[alone.size() - 2] == 4);
    CHECK(alone[alone.size() - 1] == 4);
}

}  // namespace

TEST_CASE("launches: five and one for each large group, whatever the number of groups") {
    for (const std::size_t groups : {1U, 10U, 100U, 300U}) {
        CAPTURE(groups);
        const counting::Launches counted = launches_of_step(groups, 0);
        // BeginNorm, the norm, FinishNorm, BeginStep with BeginUpdates, the update.
        CHECK(counted.all == 5);
        CHECK(counted.batches == (groups > 1 ? 1 : 0));
        CHECK(counted.pieces == 10 * groups);  // blocks of a norm begin with each parameter
    }
    const counting::Launches counted = launches_of_step(100, 3);
    CHECK(counted.all == 5 + 3);
    CHECK(counted.batches == 1);
    CHECK(counted.ranges == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE(
    "launches: a group of ten parameters side by side has one range and ten segments, and more ranges where they "
    "differ") {
    CHECK(launches_of_step(1, 0).ranges == std::vector<std::size_t>{1});
    CHECK(launches_of_step(1, 0).pieces == 10);
    const auto ranges_with = [](const sk::TensorList<float>& tensors, std::vector<sk::ParamGroup> groups) {
        std::size_t ranges = 0;
        on_device([&](auto& rank) {
            std::vector<Layer<float>> layers;
            add_layers(layers, rank, 1, "layer.", tensors);
            sk::Model model{layers};
            sk::SGD optimizer{model, {.learning_rate = 0.5, .weight_decay = 0.5}, std::move(groups)};
            launches = {};
            optimizer.step(sk::assume_reduced(model));
            REQUIRE(launches.ranges.size() == 1);
            ranges = launches.ranges[0];
        });
        return ranges;
    };
    const auto third = [](auto, auto name) { return name == "t2"; };
    CHECK(ranges_with(ten_tensors<float>(), {}) == 1);
    CHECK(ranges_with(ten_tensors<float>(), {{.matches = third, .learning_rate_scale = 2}}) == 3);
    CHECK(ranges_with(ten_tensors<float>(), {{.matches = third, .learning_rate_scale = 1}}) ==
          3);  // may be set apart
    CHECK(ranges_with({{"a", {64}}, {"b", {64}, {.frozen = true}}, {"c", {64}}}, {}) == 2);
    CHECK(ranges_with({{"a", {64}}, {"b", {64}, {.decay = false}}, {"c", {64}}}, {}) == 3);
    CHECK(ranges_with({{"a", {63}}, {"b", {64}}}, {}) == 2);  // padding between them
}

TEST_CASE("launches: a device's batches give the bits of the host's loops, for every optimizer and precision") {
    const std::vector<sk::ParamGroup> own{
        {.matches = [](auto path, auto name) { return path == "floats.1" || name == "t3"; },
         .learning_rate_scale = 0.25,
         .weight_decay = 0.5}};
    check_same_everywhere([&](const auto& model) { return sk::AdamW{model, {.learning_rate = 0.05}, own}; });
    check_same_everywhere([&](const auto& model) {
        return sk::SGD{model, {.learning_rate = 0.05, .rule = sk::Momentum::classical, .momentum = 0.9}, own};
    });
    check_same_everywhere([&](const auto& model) { return sk::SGD{model, {.learning_rate = 0.05}}; });
    check_same_everywhere([&](const auto& model) { return sk::Lion{model, {.learning_rate = 0.05}, own}; });
}

TEST_CASE("launches: groups that are left out are jumped over, and nothing is uploaded for that") {
    on_device([&](auto& rank) {
        std::vector<Layer<float>> layers;
        add_layers(layers, rank, 9, "layers.", ten_tensors<float>());
        sk::Model model{layers};
        sk::AdamW optimizer{model, {}};
        for (const std::size_t left_out : {9U, 4U, 0U, 8U}) {
            sk::Accumulation accumulation{model};
            for (std::size_t i = 0; i < layers.size(); ++i) {
                i == left_out ? accumulation.skip(layers[i]) : accumulation.add_zero(layers[i]);
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            launches = {};
            const auto norm = sk::global_norm(reduced);
            optimizer.step(std::move(reduced), sk::clip(norm, 1));
            CHECK(launches.all == (left_out == 4 ? 8 : 5));
            CHECK(launches.pieces == (left_out == 9 ? 90 : 80));
            CHECK(launches.copies == (left_out == 9 ? 1 : 0));  // the norm's table, at its first use
        }
    });
}

TEST_CASE("launches: the last work of a step's own norm is part of the step's first launch, with the same bits") {
    on_device([&](auto& rank) {
        std::vector<Layer<float>> layers;
        add_layers(layers, rank, 2, "layers.", ten_tensors<float>());
        sk::Model model{layers};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        const auto accumulated = [&] {
            sk::Accumulation accumulation{model};
            for (auto& layer : layers) {
                auto handle = accumulation.gradients(layer);
                for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                    auto view = handle.view(p);
                    for (std::size_t i = 0; i < view.size(); ++i) { view[i] = 0.125F * static_cast<float>(i % 11); }
                }
                accumulation.add(std::move(handle));
            }
            launches = {};
            return accumulation;
        };
        for (const auto kind : {sk::NormKind::two, sk::NormKind::infinity}) {
            double values[2]{};
            std::size_t counts[2]{};
            for (int round = 0; round < 2; ++round) {  // the first makes the norm's memory
                auto reduced = sk::reduce(accumulated(), sk::mean);
                const auto norm = sk::global_norm(reduced, kind);
                values[0] = norm.value();
                optimizer.step(std::move(reduced), sk::clip(norm, 1));
                counts[0] = launches.all;
                values[1] = optimizer.step(accumulated(), {.max_norm = 1, .norm = kind}).value();
                counts[1] = launches.all;
            }
            CHECK(values[0] > 0);
            CHECK(values[1] == values[0]);
            CHECK(counts[1] + 1 == counts[0]);
        }
    });
}

TEST_CASE("launches: a model whose group was exchanged has a norm's table of its own, also at the same address") {
    on_device([&](auto& rank) {
        std::vector<Layer<float>> layers;
        add_layers(layers, rank, 3, "layers.", ten_tensors<float>());
        for (std::size_t round = 0; round < 4; ++round) {
            // Other places in the buffer count each time.
            layers[1] = Layer<float>(rank, "layers.1",
                                     {{"a", {64 * (round + 1)}, {.frozen = true}}, {"b", {64 * (9 - round)}}});
            layers[1].initialize([](auto, auto, auto) { return 2.0; });
            sk::Model model{layers};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            for (auto& layer : layers) {
                for (float& element : sk::gradient_shard(layer)) { element = 0.25F; }
            }
            auto reduced = sk::assume_reduced(model);
            const auto norm = sk::global_norm(reduced);
            const auto counted = static_cast<double>(2 * 640 + 64 * (9 - round));
            CHECK(norm.value() == doctest::Approx(0.25 * std::sqrt(counted)));
            optimizer.step(std::move(reduced));
            std::vector<float> values(64 * (9 - round));
            layers[1].read_full(1, std::span<float>(values));
            CHECK(values == std::vector<float>(values.size(), 1.75F));
        }
    });
}

}  // namespace launches_test
