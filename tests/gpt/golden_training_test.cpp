// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../../examples/train_gpt/program/command_line.hpp"
#include "../../examples/train_gpt/program/job.hpp"
#include "../largest_difference.hpp"
#include "../test_size.hpp"
#include "golden_text.hpp"

using namespace train_gpt;

namespace golden_training_test {

namespace {

struct Ranks {
    program::MeshExtents mesh;
    program::PolicyChoice policy;
    std::size_t ep = 1;
};

/// The meshes that have to agree with PyTorch's one process; each is trained with every case of the file.
constexpr Ranks all_ranks[] = {
    {{1, 1, 1}, {program::PolicyKind::no_shard}},        {{2, 1, 1}, {program::PolicyKind::full_shard}},
    {{3, 1, 1}, {program::PolicyKind::shard_optimizer}}, {{1, 2, 1}, {program::PolicyKind::no_shard}},
    {{1, 1, 2}, {program::PolicyKind::shard_grad_op}},   {{2, 2, 2}, {program::PolicyKind::full_shard}},
    {{1, 4, 2}, {program::PolicyKind::full_shard}},
};
/// Likewise with experts; the batch is cut into as many passes on each.
constexpr Ranks ranks_with_experts[] = {
    {{1, 1, 1}, {program::PolicyKind::no_shard}},           {{2, 1, 1}, {program::PolicyKind::shard_optimizer}, 2},
    {{4, 1, 1}, {program::PolicyKind::full_shard}, 1},      {{4, 1, 1}, {program::PolicyKind::shard_grad_op}, 2},
    {{4, 1, 1}, {program::PolicyKind::hybrid_shard, 2}, 2}, {{4, 1, 1}, {program::PolicyKind::full_shard}, 4},
    {{2, 2, 1}, {program::PolicyKind::full_shard}, 2},      {{1, 4, 1}, {program::PolicyKind::no_shard}, 1},
};

nlohmann::json golden_training(const std::string& name = "gpt_training.json") {
    const std::string path = std::string(SHARDKIT_GOLDEN_DIR) + "/" + name;
    std::ifstream file(path);
    if (!file) { FAIL("no file '", path, "': tests/golden/make_gpt_training_golden.py writes it"); }
    return nlohmann::json::parse(file);
}

Options options_of(const nlohmann::json& given) {
    Options options;
    options.model = {given.at("sequence"), given.at("layers"), given.at("width"), given.at("heads"),
                     given.at("head") == "tied" ? HeadKind::tied : HeadKind::untied};
    options.batch = given.at("batch");
    options.steps = given.at("steps");
    options.dtype = Dtype::fp64;
    options.optimizer = given.at("optimizer") == "adamw" ? OptimizerKind::adamw : OptimizerKind::sgd;
    options.learning_rate = given.at("learning_rate");
    options.weight_decay = given.at("weight_decay");
    options.clip = given.at("clip");
    options.model.experts = given.value("experts", 0U);
    options.model.top = given.value("top", 2U);
    options.model.capacity = given.value("capacity", 0U);
    options.seed = given.at("seed");
    return options;
}

/// Trains with the options, whose losses and norms are those of `expected` to 1e-12.
void check(const Options& options, const nlohmann::json& expected) {
    const std::vector<double> losses = expected.at("losses");
    const std::vector<double> norms = expected.at("grad_norms");
    REQUIRE(losses.size() == options.steps);
    REQUIRE(norms.size() == options.steps);
    validate(options);
    const std::vector<Token> text = test::make_text(expected.at("config").at("text_bytes"));
    const Results results = train({options, text});
    REQUIRE(results.losses.size() == options.steps);
    REQUIRE(results.grad_norms.size() == options.steps);
    double loss = 0;
    double norm = 0;
    for (std::size_t s = 0; s < options.steps; ++s) {
        loss = larger(loss, std::abs(results.losses[s] - losses[s]));
        norm = larger(norm, std::abs(results.grad_norms[s] - norms[s]) / norms[s]);
    }
    CAPTURE(expected.at("config").dump());
    CAPTURE(options.mesh.describe());
    CAPTURE(options.policy.text());
    CAPTURE(options.microbatches);
    CAPTURE(options.ep);
    CHECK(loss <= 1e-12);
    CHECK(norm <= 1e-12);
}

}  // namespace

TEST_SUITE("gpt.golden_training") {
    TEST_CASE("every case has losses that fall, and the bounds clip where they say so") {
        const auto file = golden_training();
        REQUIRE(file.at("cases").size() == 4);
        std::size_t clipped = 0;
        for (const auto& expected : file.at("cases")) {
            const std::vector<double> losses = expected.at("losses");
            const std::vector<double> norms = expected.at("grad_norms");
            CHECK(losses.front() - losses.back() > 0.02);
            const double clip = expected.at("config").at("clip");
            if (clip > 0) {
                ++clipped;
                CHECK(*std::max_element(norms.begin(), norms.end()) > 1.25 * clip);
            }
        }
        CHECK(clipped == 2);
    }

    TEST_CASE("losses and gradient norms of whole runs agree with PyTorch in one process, on every mesh") {
        const auto file = golden_training();
        for (const auto& expected : file.at("cases")) {
            Options options = options_of(expected.at("config"));
            for (const Ranks& ranks : all_ranks) {
                if (test_size::reduced() && ranks.mesh.tp * ranks.mesh.cp == 1) { continue; }
                options.mesh = ranks.mesh;
                options.policy = ranks.policy;
                for (const std::size_t microbatches : {1U, 2U}) {
                    if (test_size::reduced() && microbatches == 1) { continue; }
                    options.microbatches = microbatches;
                    check(options, expected);
                }
            }
        }
    }

    TEST_CASE("with experts on any number of ranks, losses and gradient norms of whole runs agree with PyTorch") {
        const auto file = golden_training("gpt_experts_training.json");
        REQUIRE(file.at("cases").size() == 2);
        for (const auto& expected : file.at("cases")) {
            CHECK(expected.at("losses").front().get<double>() - expected.at("losses").back().get<double>() > 0.4);
            Options options = options_of(expected.at("config"));
            for (const Ranks& ranks : ranks_with_experts) {
                options.mesh = ranks.mesh;
                options.policy = ranks.policy;
                options.ep = ranks.ep;
                options.microbatches = expected.at("config").at("passes").get<std::size_t>() / ranks.mesh.dp;
                check(options, expected);
            }
        }
    }
}

}  // namespace golden_training_test
