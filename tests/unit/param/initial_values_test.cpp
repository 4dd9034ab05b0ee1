// SPDX-License-Identifier: Apache-2.0
// First values by formulas that have another implementation in the standard library, and by their distributions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/param/initial_values.hpp>

#include "../thrown_message.hpp"

namespace initial_values_test {

namespace {

using shardkit::InitialValues;

constexpr std::size_t count = 200'000;

std::vector<double> sorted(const InitialValues& values) {
    std::vector<double> all;
    for (std::uint64_t i = 0; i < count; ++i) { all.push_back(values(i)); }
    std::sort(all.begin(), all.end());
    return all;
}
/// The largest distance between the values' distribution and `expected` (Kolmogorov and Smirnov).
template <class F>
double distance(const std::vector<double>& values, const F& expected) {
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double p = expected(values[i]);
        largest = std::max({largest, std::abs(p - static_cast<double>(i) / count),
                            std::abs(p - static_cast<double>(i + 1) / count)});
    }
    return largest;
}
// One draw in a million is further away; the seeds are fixed, so that none is drawn anew.
const double most = 2.7 / std::sqrt(static_cast<double>(count));

}  // namespace

TEST_CASE("InitialValues: logarithm and cosine are those of the standard library") {
    for (int i = 0; i <= 100'000; ++i) {
        const double u = std::max(1 - i * 1e-5, std::ldexp(1.0, -53));
        const double expected = std::log(u);
        CHECK(std::abs(shardkit::detail::logarithm(u) - expected) <= 4 * 0x1p-53 * std::abs(expected));
        const double turns = i / 100'001.0;
        CHECK(std::abs(shardkit::detail::cosine_of_turns(turns) - std::cos(2 * std::numbers::pi * turns)) < 1e-15);
    }
}

TEST_CASE("InitialValues: constant, uniform and normal values are spread as they say") {
    CHECK(InitialValues::constant(0.1)("a", "b")(7) == 0.1);
    const auto uniform = sorted(InitialValues::uniform(-3, 5, 11)("layer", "weight"));
    CHECK(uniform.front() >= -3);
    CHECK(uniform.back() < 5);
    CHECK(distance(uniform, [](double x) { return (x + 3) / 8; }) < most);
    const auto normal = sorted(InitialValues::normal(2, 0.5, 11)("layer", "weight"));
    const auto cdf = [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::numbers::sqrt2); };
    CHECK(distance(normal, cdf) < most);
    // Wrong where the deviation is taken for the variance.
    CHECK(distance(normal, [&](double x) { return cdf(2 + (x - 2) * 0.5 / std::sqrt(0.5)); }) > 10 * most);
}

TEST_CASE("InitialValues: other parameters, groups and seeds have other values, and equal ones the same") {
    const InitialValues values = InitialValues::normal(0, 1, 3);
    const InitialValues others[] = {values("a", "x"),
                                    values("b", "x"),
                                    values("a", "y"),
                                    values("ax", ""),
                                    InitialValues::normal(0, 1, 4)("a", "x"),
                                    InitialValues::normal(0, 1, 3 + (std::uint64_t{1} << 32U))("a", "x")};
    for (std::size_t i = 0; i < std::size(others); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            // Of two independent ones neighbours agree in sign half of the time.
            int equal_signs = 0;
            for (std::uint64_t k = 0; k < 10'000; ++k) {
                equal_signs += others[i](k) * others[j](k) > 0 ? 1 : 0;
                CHECK(others[i](k) != others[j](k));
            }
            CHECK(std::abs(equal_signs - 5000) < 250);
        }
    }
    CHECK(values("a", "x")(5) == others[0](5));
    // Indices beyond 2^32 have values of their own.
    CHECK(others[0](5) != others[0](5 + (std::uint64_t{1} << 32U)));
}

TEST_CASE("InitialValues: what is no distribution is refused with what was given") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::nan("");
    for (const auto& [low, high] :
         {std::pair(1.0, 0.5), std::pair(0.0, infinity), std::pair(nan, 1.0), std::pair(-1.7e308, 1.7e308)}) {
        const double from = low;
        const double to = high;
        CHECK(thrown_message<std::invalid_argument>([&] {
                  InitialValues::uniform(from, to, 1, {"user.cpp", 3});
              }).ends_with("expected finite bounds in order (user.cpp:3)"));
    }
    for (const double deviation : {-1.0, infinity, nan}) {
        CHECK(thrown_message<std::invalid_argument>([&] {
                  InitialValues::normal(0, deviation, 1);
              }).find("deviation") != std::string::npos);
    }
}

}  // namespace initial_values_test
