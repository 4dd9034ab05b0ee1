// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/optim/sgd.hpp>

#include "bounds.hpp"
#include "golden.hpp"
#include "largest_difference.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace sgd_test {

namespace {

sk::SgdOptions options_of(const nlohmann::json& golden) {
    const auto& o = golden.at("options");
    const std::string rule = o.at("rule");
    return {.learning_rate = o.at("learning_rate"),
            .rule = rule == "none"       ? sk::Momentum::none
                    : rule == "nesterov" ? sk::Momentum::nesterov
                                         : sk::Momentum::classical,
            .momentum = o.at("momentum"),
            .weight_decay = o.at("weight_decay")};
}

}  // namespace

TEST_CASE_TEMPLATE("SgdUpdate: every step of PyTorch's trajectories to rounding", A, float, double) {
    const auto cases = test::golden_cases<A>("sgd");
    REQUIRE(cases.size() == 6);
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").template get<std::string>());
        const sk::SgdOptions options = options_of(golden);
        const auto update = sk::rules::sgd_update<A>(options, 1);
        auto parameter = test::numbers<A>(golden.at("initial"));
        std::vector<A> buffer(parameter.size());
        double worst_parameter = 0;
        double worst_buffer = 0;
        for (const auto& step : golden.at("steps")) {
            const auto gradient = test::numbers<A>(step.at("gradient"));
            const auto expected_parameter = test::numbers<A>(step.at("parameter"));
            const auto expected_buffer = options.rule == sk::Momentum::none
                                             ? std::vector<A>(parameter.size())
                                             : test::numbers<A>(step.at("momentum_buffer"));
            for (std::size_t i = 0; i < parameter.size(); ++i) {
                // Twice in the sum under Nesterov: once in the gradient, once in the buffer.
                const double terms = std::fabs(double(gradient[i])) +
                                     options.weight_decay * std::fabs(double(parameter[i])) +
                                     options.momentum * std::fabs(double(buffer[i]));
                const double allowed = 2 * test::moment_share<A> * options.learning_rate * 2 * terms +
                                       2 * test::ulp(expected_parameter[i]);
                if (options.rule == sk::Momentum::none) {
                    update(parameter[i], gradient[i]);
                } else {
                    update(parameter[i], buffer[i], gradient[i]);
                }
                worst_parameter = larger(worst_parameter, test::excess(parameter[i], expected_parameter[i], allowed));
                worst_buffer =
                    larger(worst_buffer, test::excess(buffer[i], expected_buffer[i], test::moment_share<A> * terms));
            }
            parameter = expected_parameter;
            buffer = expected_buffer;
        }
        CHECK(worst_parameter <= 1);
        CHECK(worst_buffer <= 1);
    }
}

TEST_CASE_TEMPLATE("SgdUpdate: three steps worked out by hand in binary fractions", A, float, double) {
    A p = 1;
    A b = 0;
    SUBCASE("none") {
        const auto update = sk::rules::sgd_update<A>({.learning_rate = 0.5, .weight_decay = 0.25}, 0.5);
        update(p, A(1));  // g = 0.5 + 0.25 = 0.75
        CHECK(p == A(0.625));
        update(p, A(-2));  // g = -1 + 0.15625
        CHECK(p == A(1.046875));
    }
    SUBCASE("classical") {
        const auto update =
            sk::rules::sgd_update<A>({.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.5}, 1);
        update(p, b, A(1));
        CHECK(b == A(1));
        CHECK(p == A(0.5));
        update(p, b, A(1));
        CHECK(b == A(1.5));
        CHECK(p == A(-0.25));
        update(p, b, A(-1));
        CHECK(b == A(-0.25));
        CHECK(p == A(-0.125));
    }
    SUBCASE("nesterov") {
        const auto update =
            sk::rules::sgd_update<A>({.learning_rate = 0.5, .rule = sk::Momentum::nesterov, .momentum = 0.5}, 1);
        update(p, b, A(1));  // direction 1 + 0.5
        CHECK(b == A(1));
        CHECK(p == A(0.25));
        update(p, b, A(1));  // direction 1 + 0.75
        CHECK(b == A(1.5));
        CHECK(p == A(-0.625));
    }
}

namespace {

constexpr double after_one_constant_step() {
    double p = 1;
    double b = 0;
    sk::rules::sgd_update<double>({.learning_rate = 0.5, .rule = sk::Momentum::nesterov, .momentum = 0.5}, 2)(p, b,
                                                                                                              1.0);
    return p;
}

}  // namespace

static_assert(after_one_constant_step() == -0.5, "usable in constant expressions");

}  // namespace sgd_test
