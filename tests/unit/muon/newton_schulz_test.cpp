// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/newton_schulz.hpp>

#include "unit/optim/golden.hpp"

namespace newton_schulz_test {

namespace sk = shardkit;

namespace {

constexpr double epsilon = 1e-7;

template <class A>
std::vector<A> orthogonalised(sk::rules::MatrixExtents extents, std::vector<A> matrix) {
    std::vector<A> scratch(sk::rules::newton_schulz_scratch<A>(extents));
    sk::rules::newton_schulz({}, sk::HostProducts{}, extents, &epsilon, std::span<A>(matrix), std::span<A>(scratch));
    return matrix;
}

sk::rules::MatrixExtents extents_of(const nlohmann::json& golden) {
    return {golden.at("rows").get<std::size_t>(), golden.at("columns").get<std::size_t>()};
}

}  // namespace

TEST_CASE_TEMPLATE("tall, wide, square, thin, zero and nearly zero matrices are what PyTorch makes of them", A, float,
                   double) {
    const auto cases = sk::test::golden_cases<A>("orthogonalised", sk::test::read_golden("muon_golden.json"));
    CHECK(cases.size() >= 10);
    for (const nlohmann::json& golden : cases) {
        CAPTURE(golden.at("name").get<std::string>());
        const std::vector<A> result =
            orthogonalised<A>(extents_of(golden), golden.at("matrix").get<std::vector<A>>());
        const auto expected = golden.at("result").get<std::vector<A>>();
        REQUIRE(result.size() == expected.size());
        // The five steps may multiply a rounding error by 3.4445 each: by 485.
        const A bound = 485 * std::numeric_limits<A>::epsilon();
        A largest = 0;
        for (std::size_t i = 0; i < result.size(); ++i) {
            largest = std::max(largest, std::abs(result[i] - expected[i]));
        }
        CHECK(largest <= bound);
    }
}

TEST_CASE("singular values become nearly one: rows of a wide matrix are nearly orthonormal") {
    const sk::rules::MatrixExtents extents{3, 40};
    std::vector<double> matrix;
    for (std::size_t i = 0; i < extents.numel(); ++i) { matrix.push_back(std::sin(static_cast<double>(i * i))); }
    const std::vector<double> result = orthogonalised<double>(extents, matrix);
    for (std::size_t a = 0; a < 3; ++a) {
        for (std::size_t b = 0; b < 3; ++b) {
            double dot = 0;
            for (std::size_t j = 0; j < 40; ++j) { dot += result[a * 40 + j] * result[b * 40 + j]; }
            // Squares of singular values between 0.68 and 1.21.
            CHECK(std::abs(dot - (a == b ? 1 : 0)) < 0.54);
        }
    }
}

TEST_CASE(
    "the direction alone matters: a multiple by a power of two gives the same bits, one that overflows fp32 too") {
    const std::vector<float> matrix{1, 2, 3, -4, 5, 7};
    std::vector<float> larger = matrix;
    for (float& element : larger) { element *= 0x1p70F; }
    CHECK(orthogonalised<float>({2, 3}, larger) == orthogonalised<float>({2, 3}, matrix));
}

TEST_CASE("a NaN or an infinity makes every element NaN") {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const sk::rules::MatrixExtents extents : {sk::rules::MatrixExtents{2, 3}, {3, 2}, {1, 6}}) {
            const std::vector<float> result = orthogonalised<float>(extents, {1, 2, bad, 4, 5, 6});
            for (const float element : result) { CHECK(std::isnan(element)); }
        }
    }
}

TEST_CASE("wrong sizes are refused with both") {
    std::vector<float> matrix(6);
    std::vector<float> scratch(6 + 7);
    CHECK_THROWS_WITH_AS(sk::rules::newton_schulz({}, sk::HostProducts{}, {3, 2}, &epsilon, std::span<float>(matrix),
                                                  std::span<float>(scratch), sk::SourceLocation{}),
                         doctest::Contains("a matrix of 6 elements and 13 to work in, expected 6 and 14"),
                         std::invalid_argument);
}

}  // namespace newton_schulz_test
