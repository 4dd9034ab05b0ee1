// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/train_gpt/model/attention.hpp"
#include "../../examples/train_gpt/model/exponential.hpp"
#include "../../examples/train_gpt/model/gelu.hpp"
#include "../../examples/train_gpt/model/host_place.hpp"
#include "../../examples/train_gpt/model/initialise.hpp"
#include "../../examples/train_gpt/model/layer_norm.hpp"
#include "../../examples/train_gpt/model/place.hpp"
#include "../largest_difference.hpp"

using namespace train_gpt;

namespace kernels_test {

TEST_SUITE("gpt.kernels") {
    TEST_CASE("the exponential is the library's within 2 ulp over the whole range of normal results") {
        const auto check = [](auto zero, double lowest, double highest) {
            using A = decltype(zero);
            constexpr int points = 200'000;
            double worst = 0;
            for (int i = 0; i <= points; ++i) {
                const A x = static_cast<A>(lowest + (highest - lowest) * i / points);
                // One precision higher than the result, so that the reference adds nothing.
                const long double exact = std::exp(static_cast<long double>(x));
                const long double error = std::abs(static_cast<long double>(exponential(x)) - exact);
                worst = larger(worst, static_cast<double>(error / (exact * std::numeric_limits<A>::epsilon())));
            }
            CHECK(worst < 2.0);
            CHECK(exponential(A{0}) == A{1});
            CHECK(std::isnan(exponential(std::numeric_limits<A>::quiet_NaN())));
            CHECK(exponential(-std::numeric_limits<A>::infinity()) >= A{0});
            CHECK(exponential(-std::numeric_limits<A>::infinity()) < A(1e-37));
        };
        check(double{}, -708.0, 709.0);
        check(float{}, -87.0, 88.0);
    }

    TEST_CASE("GELU and its slope are the tanh approximation, far arguments included") {
        std::vector<double> x;
        for (int i = -400; i <= 400; ++i) { x.push_back(0.025 * i); }
        x.push_back(-60.0);
        x.push_back(60.0);
        std::vector<double> y(x.size());
        std::vector<double> slope(x.size(), 1.0);
        HostPlace::each(x.size(), Gelu<double>{x.data(), y.data()});
        HostPlace::each(x.size(), GeluBackward<double>{x.data(), slope.data()});
        const auto reference = [](long double v) {
            const long double k = std::sqrt(2.0L / std::acos(-1.0L));
            return 0.5L * v * (1.0L + std::tanh(k * (v + 0.044715L * v * v * v)));
        };
        for (std::size_t i = 0; i < x.size(); ++i) {
            CAPTURE(x[i]);
            CHECK(std::abs(y[i] - static_cast<double>(reference(x[i]))) < 4e-15);
            const long double h = 1e-5L;
            const auto difference = static_cast<double>((reference(x[i] + h) - reference(x[i] - h)) / (2 * h));
            CHECK(std::abs(slope[i] - difference) < 1e-9);
        }
    }

    TEST_CASE("a lane sum adds every element once, whatever the length") {
        for (std::size_t n = 0; n < 40; ++n) {
            CHECK(lane_sum<double>(n, [](std::size_t i) { return static_cast<double>(i + 1); }) ==
                  static_cast<double>(n * (n + 1) / 2));
        }
    }

    TEST_CASE("layer norm: rows have mean 0 and variance 1 before weight and bias") {
        constexpr std::size_t rows = 3;
        constexpr std::size_t width = 37;
        std::vector<double> x(rows * width);
        for (std::size_t i = 0; i < x.size(); ++i) { x[i] = 5.0 + std::sin(static_cast<double>(i * i)); }
        std::vector<double> weight(width, 1.0);
        std::vector<double> bias(width, 0.0);
        std::vector<double> y(x.size());
        std::vector<double> mean(rows);
        std::vector<double> deviation(rows);
        layer_norm_forward(rows, width, weight.data(), bias.data(), x.data(),
                           Normed<double>{mean.data(), deviation.data(), y.data()});
        for (std::size_t r = 0; r < rows; ++r) {
            double sum = 0;
            double squares = 0;
            for (std::size_t i = 0; i < width; ++i) {
                sum += y[r * width + i];
                squares += y[r * width + i] * y[r * width + i];
            }
            CHECK(std::abs(sum) < 1e-12);
            const double variance = 1.0 / (deviation[r] * deviation[r]) - layer_norm_epsilon;
            CHECK(squares / width == doctest::Approx(variance / (variance + layer_norm_epsilon)).epsilon(1e-12));
        }
    }

    TEST_CASE("a softmax merged from parts is that of the whole row, in whatever order the parts come") {
        constexpr std::size_t n = 12;
        std::vector<double> whole(n);
        for (std::size_t j = 0; j < n; ++j) { whole[j] = static_cast<double>(j * 5 % 7) * 30.0 - 80.0; }
        long double total = 0;
        for (const double x : whole) { total += std::exp(static_cast<long double>(x) - 100); }
        for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{12}, {3, 12}, {1, 2, 11, 12}}) {
            auto row = whole;
            double log_sum_exp = -std::numeric_limits<double>::infinity();
            std::size_t first = 0;
            for (const std::size_t end : ends) {
                const double kept = merge_softmax(end - first, row.data() + first, log_sum_exp);
                if (first == 0) { CHECK(kept == 0.0); }
                for (std::size_t j = 0; j < first; ++j) { row[j] *= kept; }
                first = end;
            }
            CHECK(log_sum_exp == doctest::Approx(100 + std::log(static_cast<double>(total))).epsilon(1e-14));
            for (std::size_t j = 0; j < n; ++j) {
                const auto exact = static_cast<double>(std::exp(static_cast<long double>(whole[j]) - 100) / total);
                CHECK(std::abs(row[j] - exact) <= 1e-14 + 1e-12 * exact);
            }
        }
    }

    TEST_CASE("first values: normal with the asked deviation, a function of path, name, index and seed alone") {
        const ModelConfig of_eight{64, 8};
        const Initialiser init(42, of_eight);
        constexpr std::size_t n = 200'000;
        const auto moments = [&](const char* name) {
            double sum = 0;
            double squares = 0;
            double fourth = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double x = init("blocks.3", name, i);
                sum += x;
                squares += x * x;
                fourth += x * x * x * x;
            }
            CHECK(std::abs(sum / n) < 5 * 0.02 / std::sqrt(static_cast<double>(n)));
            CHECK(fourth / n == doctest::Approx(3 * std::pow(squares / n, 2)).epsilon(0.05));
            return std::sqrt(squares / n);
        };
        CHECK(moments("qkv_weight") == doctest::Approx(0.02).epsilon(0.02));
        CHECK(moments("projection_weight") == doctest::Approx(0.005).epsilon(0.02));
        CHECK(moments("down_weight") == doctest::Approx(0.005).epsilon(0.02));
        CHECK(init("blocks.3", "up_bias", 7) == 0.0);
        CHECK(init("blocks.3", "norm1_bias", 7) == 0.0);
        CHECK(init("head", "norm_weight", 7) == 1.0);
        CHECK(init("a", "qkv_weight", 1) != init("b", "qkv_weight", 1));
        CHECK(init("a", "qkv_weight", 1) != init("a", "up_weight", 1));
        CHECK(init("a", "qkv_weight", 1) != init("a", "qkv_weight", 2));
        CHECK(init("a", "qkv_weight", 1) != Initialiser(43, of_eight)("a", "qkv_weight", 1));
        CHECK(init("a", "qkv_weight", 1) == Initialiser(42, of_eight)("a", "qkv_weight", 1));
    }
}

}  // namespace kernels_test
