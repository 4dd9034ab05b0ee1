// SPDX-License-Identifier: Apache-2.0
#include <shardkit/optim/lion.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "bounds.hpp"
#include "golden.hpp"
#include "largest_difference.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace lion_test {

namespace {

sk::LionOptions options_of(const nlohmann::json& golden) {
    const auto& o = golden.at("options");
    return {.learning_rate = o.at("learning_rate"),
            .beta1 = o.at("beta1"),
            .beta2 = o.at("beta2"),
            .weight_decay = o.at("weight_decay")};
}

/// Both betas are binary fractions: nothing rounds.
constexpr sk::LionOptions halves{.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75};

}  // namespace

TEST_CASE_TEMPLATE("LionUpdate: every step of the paper's algorithm in exact arithmetic, to rounding", A, float,
                   double) {
    const auto cases = test::golden_cases<A>("lion", test::lion_golden());
    REQUIRE(cases.size() == 4);
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").template get<std::string>());
        const sk::LionOptions options = options_of(golden);
        const auto update = sk::rules::lion_update<A>(options, 1);
        auto parameter = test::numbers<A>(golden.at("initial"));
        std::vector<A> exp_avg(parameter.size());
        double worst_parameter = 0;
        double worst_exp_avg = 0;
        for (const auto& step : golden.at("steps")) {
            const auto gradient = test::numbers<A>(step.at("gradient"));
            const auto expected_parameter = test::numbers<A>(step.at("parameter"));
            const auto expected_exp_avg = test::numbers<A>(step.at("exp_avg"));
            for (std::size_t i = 0; i < parameter.size(); ++i) {
                const double terms = std::fabs(options.beta2 * double(exp_avg[i])) +
                                     std::fabs((1 - options.beta2) * double(gradient[i]));
                update(parameter[i], exp_avg[i], gradient[i]);
                const double allowed =
                    2 * test::ulp(expected_parameter[i]) + test::step_share<A> * options.learning_rate;
                worst_parameter = larger(worst_parameter, test::excess(parameter[i], expected_parameter[i], allowed));
                worst_exp_avg = larger(worst_exp_avg,
                                       test::excess(exp_avg[i], expected_exp_avg[i], test::moment_share<A> * terms));
            }
            // The bounds are per step: each starts from the exact state, rounded.
            parameter = expected_parameter;
            exp_avg = expected_exp_avg;
        }
        CHECK(worst_parameter <= 1);
        CHECK(worst_exp_avg <= 1);
    }
}

TEST_CASE_TEMPLATE("LionUpdate: three steps worked out by hand in binary fractions", A, float, double) {
    auto options = halves;
    options.weight_decay = 0.25;
    const auto update = sk::rules::lion_update<A>(options, 0.5);
    A p = 1;
    A m = 0;
    update(p, m, A(8));    // g = 4, c = 2
    CHECK(p == A(0.375));  // 0.875 - 0.5
    CHECK(m == A(1));
    update(p, m, A(-1));       // g = -0.5, c = 0.25: against the gradient's own sign
    CHECK(p == A(-0.171875));  // 0.328125 - 0.5
    CHECK(m == A(0.625));
    update(p, m, A(-2));         // g = -1, c = -0.1875: with betas swapped it were positive
    CHECK(p == A(0.349609375));  // -0.150390625 + 0.5
    CHECK(m == A(0.21875));
}

TEST_CASE_TEMPLATE("LionUpdate: under a constant gradient m is (1 - beta2^t) g and p moves by t learning rates", A,
                   float, double) {
    for (const A gradient : {A(3), A(-1e-6), A(2e4)}) {
        const auto update = sk::rules::lion_update<A>({.learning_rate = 0.125, .weight_decay = 0}, 1);
        A p = 2;
        A m = 0;
        for (int t = 1; t <= 100; ++t) {
            update(p, m, gradient);
            CHECK(p == A(2) - A(t) * std::copysign(A(0.125), gradient));
            CHECK(m == doctest::Approx((1 - std::pow(0.99, t)) * double(gradient)).epsilon(1e-5));
        }
    }
}

TEST_CASE_TEMPLATE("LionUpdate: the sign of zero is zero, of either zero; padding stays zero", A, float, double) {
    const auto update = sk::rules::lion_update<A>(halves, 1);
    A p = 1;
    A m = 1;
    update(p, m, A(-1));  // c = 0
    CHECK(p == A(1));
    CHECK(m == A(0.5));
    for (const A zero : {A(0), -A(0)}) {
        A padding = 0;
        A state = 0;
        for (int step = 0; step < 3; ++step) { update(padding, state, zero); }
        CHECK(padding == 0);
        CHECK_FALSE(std::signbit(padding));
        CHECK(state == 0);
    }
}

TEST_CASE_TEMPLATE("LionUpdate: NaN shows in parameter and state, an infinite gradient in the state", A, float,
                   double) {
    const auto update = sk::rules::lion_update<A>({}, 1);
    A p = 1;
    A m = 0;
    update(p, m, std::numeric_limits<A>::infinity());
    CHECK(p == A(1) - A(1e-4));
    CHECK(std::isinf(m));
    update(p, m, std::numeric_limits<A>::quiet_NaN());
    CHECK(std::isnan(p));
    CHECK(std::isnan(m));
}

TEST_CASE_TEMPLATE("LionUpdate: gradient_scale multiplies the gradient before anything else", A, float, double) {
    const auto scaled = sk::rules::lion_update<A>({}, 1.0 / 1024);
    const auto plain = sk::rules::lion_update<A>({}, 1);
    for (const A gradient : {A(0.37), A(-51.25), A(0)}) {
        A p[2] = {A(0.7), A(0.7)};
        A m[2] = {A(-0.01), A(-0.01)};
        scaled(p[0], m[0], gradient * 1024);
        plain(p[1], m[1], gradient);
        CHECK(p[0] == p[1]);
        CHECK(m[0] == m[1]);
    }
}

TEST_CASE("lion_update: constants are made in double and rounded once") {
    const auto update = sk::rules::lion_update<float>({.learning_rate = 1e-4, .weight_decay = 0.1}, 1.0 / 3);
    CHECK(update.decay == static_cast<float>(1 - 1e-5));
    CHECK(update.one_minus_beta2 == static_cast<float>(1 - 0.99));
    CHECK(update.one_minus_beta2 != 1 - static_cast<float>(0.99));
    CHECK(update.gradient_scale == sk::rules::Factor<float>(1.0 / 3));
}

namespace {

constexpr double after_one_constant_step() {
    double p = 1;
    double m = 0;
    sk::rules::lion_update<double>(halves, 2)(p, m, -1.0);
    return p + m;
}

}  // namespace

static_assert(after_one_constant_step() == 1, "usable in constant expressions");

}  // namespace lion_test
