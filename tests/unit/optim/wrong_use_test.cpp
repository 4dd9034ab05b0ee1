// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

// Uses that compile and would give a wrong number: each is an error that names both sides.

namespace sk = shardkit;

namespace wrong_use_test {

using toy::Flat;

namespace {

template <class Model, class Layer>
auto reduced(const Model& model, Layer& layer) {
    sk::Accumulation accumulation{model};
    toy::add(accumulation, layer, 1);
    return sk::reduce(std::move(accumulation), sk::mean);
}

/// Two groups of one size on two ranks; what the engine says on `rank` of a use that differs there.
template <class Policy, class Use>
std::string said_on(std::size_t asked, const Use& use) {
    std::string said;
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto a = toy::linear_layer<Policy>(rank, "blocks.0");
        auto b = toy::linear_layer<Policy>(rank, "blocks.1");
        const std::string text = thrown_message<sk::CommError>([&] { use(rank.rank(), a, b); });
        if (rank.rank() == asked) { said = text; }
    });
    return said;
}

}  // namespace

TEST_CASE("groups of one size, used in another order on one of the ranks") {
    for (const std::size_t rank : {0U, 1U}) {
        CAPTURE(rank);
        const std::string gathers = said_on<sk::FullShard>(
            rank, [](std::size_t self, auto& a, auto& b) { static_cast<void>((self == 0 ? a : b).unshard()); });
        CAPTURE(gathers);
        CHECK(has(gathers, "rank 0 calls all_gather of 32 fp64 for 'blocks.0' parameters at "));
        CHECK(has(gathers, "rank 1 calls all_gather of 32 fp64 for 'blocks.1' parameters at "));
        const std::string adds = said_on<sk::NoShard>(rank, [](std::size_t self, auto& a, auto& b) {
            sk::Model model{a, b};
            sk::Accumulation accumulation{model};
            toy::add(accumulation, self == 0 ? b : a, 1);
        });
        CHECK(has(adds, "rank 0 calls all_reduce sum of "));
        CHECK(has(adds, "for 'blocks.1' gradients at "));
        CHECK(has(adds, "for 'blocks.0' gradients at "));
    }
}

TEST_CASE("groups of two ranks in one model") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        sk::MeshRank<sk::DeviceMesh<1, 2, 1>> across(sk::DeviceMesh<1, 2, 1>{}, rank.world());
        auto a = toy::linear_layer<sk::FullShard>(rank, "a");
        toy::LinearLayer<sk::DynamicPolicy> b(static_cast<sk::Rank&>(across), "b", toy::linear_shapes(),
                                              {toy::chosen(sk::FullShard{}), {}, {}});
        sk::Model model{a, b};
        const auto optimizer = thrown_message<sk::UsageError>([&] { sk::SGD{model, {.learning_rate = 1}}; });
        CHECK(has(optimizer, "'a' is on mesh "));
        CHECK(has(optimizer, "'b' on mesh "));
        CHECK(has(optimizer, "wrong_use_test.cpp"));
        const auto step = thrown_message<sk::UsageError>([&] { sk::Accumulation accumulation{model}; });
        CHECK(has(step, "'b' on mesh "));
        // Neither is left in a step.
        sk::Model alone{a};
        CHECK_NOTHROW(static_cast<void>(sk::Accumulation{alone}));
    });
}

TEST_CASE("the clip coefficient of another step's norm") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        auto first = reduced(model, layer);
        const auto norm = sk::global_norm(first);
        optimizer.step(std::move(first), sk::clip(norm, 1));
        auto second = reduced(model, layer);
        const auto wrong =
            thrown_message<sk::UsageError>([&] { optimizer.step(std::move(second), sk::clip(norm, 1)); });
        CHECK(has(wrong, "of the norm of other gradients"));
        CHECK_NOTHROW(optimizer.step(std::move(second), sk::clip(sk::global_norm(second), 1)));
    });
}

TEST_CASE("a coefficient that asks nobody for overflow, with a loss scale") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::LossScale scale(rank);
        const auto scaled = [&] {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, scale.value());
            return sk::reduce(std::move(accumulation), sk::mean, scale);
        };
        auto gradients = scaled();
        CHECK(
            has(thrown_message<sk::UsageError>([&] { optimizer.step(std::move(gradients), sk::ClipCoefficient{}); }),
                "would hide an overflow"));
        CHECK_NOTHROW(optimizer.step(std::move(gradients), sk::clip(sk::global_norm(gradients), sk::unlimited)));
    });
}

TEST_CASE("a LossScale for two models") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto a = toy::linear_layer<sk::NoShard>(rank, "a");
        auto b = toy::linear_layer<sk::NoShard>(rank, "b");
        sk::Model model_a{a};
        sk::Model model_b{b};
        sk::LossScale scale(rank);
        const auto scaled = [&](auto& model, auto& layer) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, scale.value());
            return sk::reduce(std::move(accumulation), sk::mean, scale);
        };
        CHECK_NOTHROW(static_cast<void>(scaled(model_a, a)));
        const auto wrong = thrown_message<sk::UsageError>([&] { static_cast<void>(scaled(model_b, b)); });
        CHECK(has(wrong, "of the model of 'a'"));
        CHECK(has(wrong, "for the model of 'b'"));
        CHECK_NOTHROW(static_cast<void>(scaled(model_a, a)));
    });
}

TEST_CASE("a model's vector that lost a group and got another one") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        using Layer = decltype(toy::linear_layer<sk::NoShard>(rank));
        std::vector<Layer> layers;
        for (const char* path : {"0", "1", "2"}) { layers.push_back(toy::linear_layer<sk::NoShard>(rank, path)); }
        sk::Model model{layers};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const auto step = [&] {
            sk::Accumulation accumulation{model};
            for (auto& layer : layers) { toy::add(accumulation, layer, 1); }
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        };
        CHECK_NOTHROW(step());
        layers.erase(layers.begin());
        layers.push_back(toy::linear_layer<sk::NoShard>(rank, "3"));
        const auto wrong = thrown_message<sk::UsageError>(step);
        CHECK(has(wrong, "'0': this group of the model has ended or was assigned to since the model was made"));
    });
}

TEST_CASE("divisors and loss scales whose reciprocal no float holds") {
    struct Case {
        double scale, divisor, gradient, expected;
    };
    for (const Case& c : {Case{0x1p125, 3e7, 1.2760589e35, 1e-10}, Case{1, 1e30, 1e23, 1e-7},
                          Case{1, 1e-30, 1e-38, 1e-8}, Case{0x1p125, 0x1p99, 0x1p124, 0x1p-100}}) {
        CAPTURE(c.divisor);
        sk::threads::run(Flat{1}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::NoShard, sk::Precision<float>>(rank);
            layer.initialize([](auto, auto, auto) { return 0.0; });
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            sk::LossScale scale(rank, {.initial = c.scale});
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            handle[toy::Bias{}][3] = static_cast<float>(c.gradient);
            accumulation.add(std::move(handle));
            auto gradients = sk::reduce(std::move(accumulation), sk::divide_by(c.divisor), scale);
            const auto norm = sk::global_norm(gradients);
            std::vector<float> bias(toy::outputs);
            gradients.read_full(layer, toy::Bias{}, std::span<float>(bias));
            CHECK(bias[3] == doctest::Approx(c.expected).epsilon(1e-6).scale(0));
            optimizer.step(std::move(gradients), sk::clip(norm, sk::unlimited));
            layer.read_full(toy::Bias{}, std::span<float>(bias));
            CHECK(-bias[3] == doctest::Approx(c.expected).epsilon(1e-6).scale(0));
            // The square of a small element is none that a float holds.
            if (c.expected > 1e-15) { CHECK(norm.value() == doctest::Approx(c.expected).epsilon(1e-6).scale(0)); }
        });
    }
}

}  // namespace wrong_use_test
