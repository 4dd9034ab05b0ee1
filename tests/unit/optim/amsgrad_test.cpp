// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>

#include "bounds.hpp"
#include "golden.hpp"
#include "largest_difference.hpp"
#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace amsgrad_test {

TEST_CASE_TEMPLATE("AmsgradUpdate: every step of PyTorch's trajectories within the bounds of AdamW's", A, float,
                   double) {
    const auto cases = test::golden_cases<A>("amsgrad");
    REQUIRE(cases.size() == 4);
    std::size_t held = 0;  // elements whose maximum is not their last second moment
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").template get<std::string>());
        const auto& o = golden.at("options");
        const sk::AdamWOptions options{.learning_rate = o.at("learning_rate"),
                                       .beta1 = o.at("beta1"),
                                       .beta2 = o.at("beta2"),
                                       .epsilon = o.at("epsilon"),
                                       .weight_decay = o.at("weight_decay")};
        auto parameter = test::numbers<A>(golden.at("initial"));
        std::vector<A> exp_avg(parameter.size());
        std::vector<A> exp_avg_sq(parameter.size());
        std::vector<A> largest(parameter.size());
        sk::rules::AmsgradRule::Progress progress;
        double worst = 0;
        double worst_state = 0;
        for (const auto& step : golden.at("steps")) {
            sk::rules::AmsgradRule::advance(progress, options);
            const auto update = sk::rules::AmsgradRule::update<A>(progress, options, 1);
            const auto gradient = test::numbers<A>(step.at("gradient"));
            const auto expected = test::numbers<A>(step.at("parameter"));
            const auto expected_largest = test::numbers<A>(step.at("max_exp_avg_sq"));
            for (std::size_t i = 0; i < parameter.size(); ++i) {
                const double g = gradient[i];
                const double terms = options.beta2 * double(exp_avg_sq[i]) + (1 - options.beta2) * g * g;
                const double allowed_state = test::moment_share<A> * larger(terms, double(largest[i]));
                update(parameter[i], exp_avg[i], exp_avg_sq[i], largest[i], gradient[i]);
                const double allowed = 2 * test::ulp(expected[i]) + test::step_share<A> * options.learning_rate;
                worst = larger(worst, test::excess(parameter[i], expected[i], allowed));
                worst_state = larger(worst_state, test::excess(largest[i], expected_largest[i], allowed_state));
            }
            parameter = expected;
            exp_avg = test::numbers<A>(step.at("exp_avg"));
            exp_avg_sq = test::numbers<A>(step.at("exp_avg_sq"));
            largest = expected_largest;
            for (std::size_t i = 0; i < parameter.size(); ++i) { held += largest[i] > exp_avg_sq[i] ? 1U : 0U; }
        }
        CHECK(worst <= 1);
        CHECK(worst_state <= 1);
    }
    CHECK(held > 20);
}

TEST_CASE("AmsgradUpdate: a NaN shows in the maximum, and padding stays zero") {
    const auto update = sk::rules::AmsgradRule::update<float>({1, 0.9, 0.999}, {}, 1);
    float values[4] = {0, 0, 0, 0};
    update(values[0], values[1], values[2], values[3], 0.0F);
    for (const float value : values) { CHECK(value == 0); }
    values[3] = 5;
    update(values[0], values[1], values[2], values[3], std::numeric_limits<float>::quiet_NaN());
    CHECK(std::isnan(values[3]));
    CHECK(std::isnan(values[0]));
}

TEST_CASE("AMSGrad: three sharded states, the same values on one rank and on three") {
    std::vector<double> expected(35);
    const auto train = [&](std::size_t ranks, auto policy, std::vector<double>& values) {
        sk::threads::run(toy::Flat{ranks}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            sk::AMSGrad optimizer{model, {.learning_rate = 0.25, .beta2 = 0.5}};
            for (const double factor : {4.0, 0.5, 0.25}) {  // exact in every order of sums
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, factor);
                optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            }
            std::size_t states = 0;
            for (const auto& shard : optimizer.shards()) { states += shard.kind == "max_exp_avg_sq" ? 1U : 0U; }
            if (rank.rank() == 0) { CHECK(states >= 1); }
            std::vector<double> read(35);
            layer.read_full(toy::Weight{}, read);
            if (rank.rank() == 0) { values = read; }
        });
    };
    train(1, sk::NoShard{}, expected);
    CHECK(expected[34] < 34);
    std::vector<double> sharded;
    train(3, sk::FullShard{}, sharded);
    CHECK(sharded == expected);
}

}  // namespace amsgrad_test
