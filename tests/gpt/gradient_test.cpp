// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../largest_difference.hpp"
#include "whole_model.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace gradient_test {

namespace {

/// Weights away from the first values: every norm weight and bias is moved too, so that no term of a
/// derivative is hidden behind a 1 or a 0.
void perturb(Tensors<double>& weights) {
    const Initialiser noise(991, {64, 1});
    const Initialiser start(7, {64, 2});
    weights.fill([&](const std::string& path, const std::string& name, std::size_t i) {
        return start(path, name, i) + 10.0 * noise(path, "noise" + name + ".x", i);
    });
}

/// The loss is the mean over the tokens: the derivative of a sum would drown in the sum's rounding.
void check_against_central_differences(const ModelConfig& config, BatchShape batch) {
    Tensors<double> weights(config);
    Tensors<double> gradients(config);
    perturb(weights);
    OwnedPass<double> pass(config, batch);
    auto tokens = random_bytes(batch.tokens(), 3);
    auto targets = random_bytes(batch.tokens(), 5000);
    for (auto* const all : {&tokens, &targets}) {
        for (Token& token : *all) { token = static_cast<Token>(token % config.vocabulary); }
    }
    const double scale = 1.0 / static_cast<double>(batch.tokens());
    const auto loss = [&] {
        return forward(*pass, config, batch, weights, tokens.data(), targets.data(), scale).mean();
    };
    static_cast<void>(loss());
    backward(*pass, config, weights, tokens.data(), gradients);

    constexpr double h = 1e-4;
    for (std::size_t k = 0; k < weights.all.size(); ++k) {
        auto& tensor = weights.all[k];
        const auto& gradient = gradients.all[k].values;
        double largest = 0;
        for (const double g : gradient) { largest = larger(largest, std::abs(g)); }
        REQUIRE(largest > 0);
        // Until 24 elements that a central difference can resolve have agreed to 1e-5 of themselves. It is off by the
        // third derivative times h^2 / 6, of the order of 1e-9, and by the rounding of the loss over h, 1e-11,
        // however small the element is: those below 1e-4 of their tensor's largest (rows of wte that no token reads,
        // the key bias) are compared with that one, and do not count.
        std::size_t resolved = 0;
        for (std::size_t sample = 0; resolved < 24; ++sample) {
            REQUIRE(sample < 10'000);
            const std::size_t i = mix(17 * k + sample) % tensor.values.size();
            const double kept = tensor.values[i];
            tensor.values[i] = kept + h;
            const double above = loss();
            tensor.values[i] = kept - h;
            const double below = loss();
            tensor.values[i] = kept;
            const double difference = (above - below) / (2 * h);
            CAPTURE(tensor.path);
            CAPTURE(tensor.name);
            CAPTURE(i);
            const double size = std::max(std::abs(difference), std::abs(gradient[i]));
            if (size >= 1e-4 * largest) {
                ++resolved;
                CHECK(std::abs(difference - gradient[i]) <= 1e-5 * size);
            } else {
                CHECK(std::abs(difference - gradient[i]) <= 1e-8 * largest);
            }
        }
    }
    CHECK(pass.guards_intact());
}

}  // namespace

TEST_SUITE("gpt.gradient") {
    TEST_CASE("central differences agree with the backward pass, tied and untied, 1, 2 and 4 heads") {
        for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
            for (const std::size_t heads : {1U, 2U, 4U}) {
                CAPTURE(heads);
                check_against_central_differences({5, 2, 8, heads, head}, {3, 5});
                // 28 rows of padding, whatever they hold.
                check_against_central_differences({5, 2, 8, heads, head, 0, 2, 0, 100}, {3, 5});
            }
        }
    }

    TEST_CASE("the attention key bias has no gradient: a constant added to every key cancels in the softmax") {
        const ModelConfig config{6, 2, 12, 3, HeadKind::tied};
        const BatchShape batch{2, 6};
        Tensors<double> weights(config);
        Tensors<double> gradients(config);
        perturb(weights);
        OwnedPass<double> pass(config, batch);
        const auto tokens = random_bytes(batch.tokens(), 1);
        const auto targets = random_bytes(batch.tokens(), 2);
        forward(*pass, config, batch, weights, tokens.data(), targets.data());
        backward(*pass, config, weights, tokens.data(), gradients);
        const std::size_t d = config.head_width();
        for (const auto& tensor : gradients.all) {
            if (tensor.name != "qkv_bias") { continue; }
            for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                const bool key = i / d % 3 == 1;
                if (key) {
                    CHECK(std::abs(tensor.values[i]) < 1e-14);
                } else {
                    CHECK(std::abs(tensor.values[i]) > 1e-8);
                }
            }
        }
    }

    TEST_CASE("gradients add: two passes into one set of gradients are the sum of two, for every element type") {
        const auto check = [](auto element) {
            using T = decltype(element);
            const ModelConfig config{8, 2, 16, 2, HeadKind::tied};
            const BatchShape batch{2, 8};
            Tensors<T> weights(config);
            weights.fill(Initialiser(5, config));
            OwnedPass<T> pass(config, batch);
            const auto tokens = random_bytes(2 * batch.tokens(), 11);
            const auto targets = random_bytes(2 * batch.tokens(), 12);
            Tensors<T> both(config);
            Tensors<T> parts[2] = {Tensors<T>(config), Tensors<T>(config)};
            for (std::size_t half = 0; half < 2; ++half) {
                const Token* in = tokens.data() + half * batch.tokens();
                const Token* out = targets.data() + half * batch.tokens();
                forward(*pass, config, batch, weights, in, out);
                backward(*pass, config, weights, in, parts[half]);
                forward(*pass, config, batch, weights, in, out);
                backward(*pass, config, weights, in, both);
            }
            const double epsilon = sizeof(T) == 8 ? 1e-14 : sizeof(T) == 4 ? 1e-5 : 2e-2;
            using A = Arithmetic<T>;
            for (std::size_t k = 0; k < both.all.size(); ++k) {
                double error = 0;
                double size = 0;
                for (std::size_t i = 0; i < both.all[k].values.size(); ++i) {
                    const auto value = [&](const Tensors<T>& t) {
                        return static_cast<double>(static_cast<A>(t.all[k].values[i]));
                    };
                    const double expected = value(parts[0]) + value(parts[1]);
                    error += std::pow(value(both) - expected, 2);
                    size += std::pow(expected, 2);
                }
                CAPTURE(both.all[k].name);
                CHECK(size > 0);
                CHECK(std::sqrt(error) <= epsilon * std::sqrt(size));
            }
            CHECK(pass.guards_intact());
        };
        check(double{});
        check(float{});
        check(shardkit::bf16{});
    }
}

}  // namespace gradient_test
