// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../largest_difference.hpp"
#include "whole_model.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace golden_test {

namespace {

nlohmann::json golden() {
    const std::string path = std::string(SHARDKIT_GOLDEN_DIR) + "/gpt.json";
    std::ifstream file(path);
    if (!file) { FAIL("no file '", path, "': tests/golden/make_gpt_golden.py writes it"); }
    return nlohmann::json::parse(file);
}

}  // namespace

TEST_SUITE("gpt.golden") {
    TEST_CASE("losses of four steps and every gradient of the last agree with PyTorch in double precision") {
        const auto file = golden();
        REQUIRE(file.at("cases").size() == 2);
        for (const auto& expected : file.at("cases")) {
            const auto& given = expected.at("config");
            const HeadKind head = given.at("head") == "tied" ? HeadKind::tied : HeadKind::untied;
            const ModelConfig config{given.at("sequence"), given.at("layers"), given.at("width"), given.at("heads"),
                                     head};
            const BatchShape batch{given.at("batch"), config.sequence};
            const double learning_rate = given.at("learning_rate");
            const std::size_t steps = given.at("steps");
            Tensors<double> weights(config);
            weights.fill(Initialiser(given.at("seed"), config));
            OwnedPass<double> pass(config, batch);
            Tensors<double> gradients(config);
            for (std::size_t step = 0; step < steps; ++step) {
                const auto tokens = random_bytes(batch.tokens(), 1000 + 100 * step);
                const auto targets = random_bytes(batch.tokens(), 5000 + 100 * step);
                gradients = Tensors<double>(config);
                const double loss = forward(*pass, config, batch, weights, tokens.data(), targets.data(),
                                            1.0 / static_cast<double>(batch.tokens()))
                                        .mean();
                backward(*pass, config, weights, tokens.data(), gradients);
                CHECK(std::abs(loss - expected.at("losses").at(step).get<double>()) < 1e-12);
                if (step + 1 == steps) { break; }
                for (std::size_t k = 0; k < weights.all.size(); ++k) {
                    for (std::size_t i = 0; i < weights.all[k].values.size(); ++i) {
                        weights.all[k].values[i] -= learning_rate * gradients.all[k].values[i];
                    }
                }
            }
            REQUIRE(gradients.all.size() == expected.at("gradients").size());
            for (std::size_t k = 0; k < gradients.all.size(); ++k) {
                const auto& tensor = gradients.all[k];
                CAPTURE(tensor.path);
                CAPTURE(tensor.name);
                const auto& references = expected.at("gradients");
                const auto found = std::find_if(references.begin(), references.end(), [&](const auto& gradient) {
                    return gradient.at("path") == tensor.path && gradient.at("name") == tensor.name;
                });
                REQUIRE(found != references.end());
                const auto& reference = *found;
                const std::vector<double> values = reference.at("values");
                const std::size_t stride = reference.at("row_stride");
                double squares = 0;
                for (const double g : tensor.values) { squares += g * g; }
                const double norm = reference.at("norm");
                REQUIRE(norm > 0);
                CHECK(std::abs(std::sqrt(squares) - norm) <= 1e-11 * norm);
                const std::size_t width = stride == 1 ? tensor.values.size() : config.width;
                REQUIRE(values.size() * stride == tensor.values.size());
                double worst = 0;
                for (std::size_t i = 0; i < values.size(); ++i) {
                    const std::size_t at = i / width * stride * width + i % width;
                    worst = larger(worst, std::abs(tensor.values[at] - values[i]));
                }
                CHECK(worst <= 1e-11 * norm);
            }
        }
    }
}

}  // namespace golden_test
