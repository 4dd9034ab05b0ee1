// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <shardkit/optim/adamw.hpp>

#include "bounds.hpp"
#include "golden.hpp"
#include "largest_difference.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace adamw_test {

namespace {

sk::AdamWOptions options_of(const nlohmann::json& golden) {
    const auto& o = golden.at("options");
    return {.learning_rate = o.at("learning_rate"),
            .beta1 = o.at("beta1"),
            .beta2 = o.at("beta2"),
            .epsilon = o.at("epsilon"),
            .weight_decay = o.at("weight_decay")};
}

}  // namespace

TEST_CASE_TEMPLATE("AdamWUpdate: every step of PyTorch's trajectories within the stated bounds", A, float, double) {
    const auto cases = test::golden_cases<A>("adamw");
    REQUIRE(cases.size() == 4);
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").template get<std::string>());
        const sk::AdamWOptions options = options_of(golden);
        auto parameter = test::numbers<A>(golden.at("initial"));
        std::vector<A> exp_avg(parameter.size());
        std::vector<A> exp_avg_sq(parameter.size());
        double power1 = 1;
        double power2 = 1;
        double worst_parameter = 0;
        double worst_exp_avg = 0;
        double worst_exp_avg_sq = 0;
        for (const auto& step : golden.at("steps")) {
            power1 *= options.beta1;
            power2 *= options.beta2;
            const auto update = sk::rules::adamw_update<A>(options, power1, power2, 1);
            const auto gradient = test::numbers<A>(step.at("gradient"));
            const auto expected_parameter = test::numbers<A>(step.at("parameter"));
            const auto expected_exp_avg = test::numbers<A>(step.at("exp_avg"));
            const auto expected_exp_avg_sq = test::numbers<A>(step.at("exp_avg_sq"));
            for (std::size_t i = 0; i < parameter.size(); ++i) {
                const double g = gradient[i];
                const double terms1 =
                    std::fabs(options.beta1 * double(exp_avg[i])) + std::fabs((1 - options.beta1) * g);
                const double terms2 = options.beta2 * double(exp_avg_sq[i]) + (1 - options.beta2) * g * g;
                update(parameter[i], exp_avg[i], exp_avg_sq[i], gradient[i]);
                const double allowed =
                    2 * test::ulp(expected_parameter[i]) + test::step_share<A> * options.learning_rate;
                worst_parameter = larger(worst_parameter, test::excess(parameter[i], expected_parameter[i], allowed));
                worst_exp_avg = larger(worst_exp_avg,
                                       test::excess(exp_avg[i], expected_exp_avg[i], test::moment_share<A> * terms1));
                worst_exp_avg_sq = larger(worst_exp_avg_sq, test::excess(exp_avg_sq[i], expected_exp_avg_sq[i],
                                                                         test::moment_share<A> * terms2));
            }
            // The bounds are per step: each starts from PyTorch's own state.
            parameter = expected_parameter;
            exp_avg = expected_exp_avg;
            exp_avg_sq = expected_exp_avg_sq;
        }
        CHECK(worst_parameter <= 1);
        CHECK(worst_exp_avg <= 1);
        CHECK(worst_exp_avg_sq <= 1);
    }
}

TEST_CASE_TEMPLATE("AdamWUpdate: the first step is decay, then one learning rate against the gradient's sign", A,
                   float, double) {
    const auto update = sk::rules::adamw_update<A>({.learning_rate = 0.5, .weight_decay = 0.25}, 0.9, 0.999, 1);
    for (const A gradient : {A(3), A(-3), A(1e-3), A(-1e4)}) {
        A parameter = 2;
        A exp_avg = 0;
        A exp_avg_sq = 0;
        update(parameter, exp_avg, exp_avg_sq, gradient);
        CHECK(parameter == doctest::Approx(2 * (1 - 0.125) - std::copysign(0.5, gradient)).epsilon(1e-5));
        CHECK(exp_avg == doctest::Approx(0.1 * gradient));
        CHECK(exp_avg_sq == doctest::Approx(0.001 * gradient * gradient));
    }
}

TEST_CASE_TEMPLATE("AdamWUpdate: gradient_scale multiplies the gradient before anything else", A, float, double) {
    const auto scaled = sk::rules::adamw_update<A>({}, 0.81, 0.998001, 1.0 / 1024);
    const auto plain = sk::rules::adamw_update<A>({}, 0.81, 0.998001, 1);
    for (const A gradient : {A(0.37), A(-51.25), A(0)}) {
        A p[2] = {A(0.7), A(0.7)};
        A m[2] = {A(-0.01), A(-0.01)};
        A v[2] = {A(0.002), A(0.002)};
        scaled(p[0], m[0], v[0], gradient * 1024);
        plain(p[1], m[1], v[1], gradient);
        CHECK(p[0] == p[1]);
        CHECK(m[0] == m[1]);
        CHECK(v[0] == v[1]);
    }
}

TEST_CASE("AdamWUpdate: a gradient whose square exceeds fp32 by little gives a finite second moment") {
    const auto update = sk::rules::adamw_update<float>({}, 0.9, 0.999, 1);
    float p = 1;
    float m = 0;
    float v = 0;
    update(p, m, v, 1e20F);
    CHECK(v == doctest::Approx(1e37).epsilon(1e-6));
    CHECK(std::isfinite(p));
}

TEST_CASE_TEMPLATE("AdamWUpdate: padding stays zero", A, float, double) {
    const auto update = sk::rules::adamw_update<A>({.learning_rate = 1, .weight_decay = 0.5}, 0.5, 0.5, 1);
    A p = 0;
    A m = 0;
    A v = 0;
    for (int step = 0; step < 3; ++step) { update(p, m, v, A(0)); }
    CHECK(p == 0);
    CHECK(m == 0);
    CHECK(v == 0);
}

TEST_CASE("adamw_update: constants are made in double and rounded once") {
    const double power1 = std::pow(0.9, 1000);
    const double power2 = std::pow(0.999, 3);
    const auto update =
        sk::rules::adamw_update<float>({.learning_rate = 1e-4, .weight_decay = 0.1}, power1, power2, 1.0 / 3);
    CHECK(update.decay == static_cast<float>(1 - 1e-5));
    CHECK(update.one_minus_beta2 == static_cast<float>(1 - 0.999));
    CHECK(update.one_minus_beta2 != 1 - static_cast<float>(0.999));
    CHECK(update.step_size == static_cast<float>(1e-4 / (1 - power1)));
    CHECK(update.inverse_root == static_cast<float>(1 / std::sqrt(1 - power2)));
    CHECK(update.gradient_scale == sk::rules::Factor<float>(1.0 / 3));
}

}  // namespace adamw_test
