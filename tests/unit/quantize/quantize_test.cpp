// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/quantize/quantize.hpp>

#include "../backend/host/kernel_data.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace quantize_test {

namespace {

template <class T, std::size_t Block>
void check_round_trip(std::size_t size) {
    const std::vector<T> values = test::random_elements<T>(size, 3);
    std::vector<std::int8_t> codes(size);
    std::vector<float> scales(sk::BlockInt8<Block>::blocks(size));
    std::vector<T> back(size);
    sk::quantize<Block>(std::span<const T>(values), std::span(codes), std::span(scales));
    sk::dequantize<Block>(std::span<const std::int8_t>(codes), std::span<const float>(scales), std::span(back));
    for (std::size_t block = 0; block < scales.size(); ++block) {
        double largest = 0;
        for (std::size_t i = block * Block; i < std::min(size, (block + 1) * Block); ++i) {
            largest = std::max(largest, std::abs(test::widened(values[i])));
        }
        CHECK(static_cast<double>(scales[block]) == doctest::Approx(largest / 127).epsilon(1e-6));
    }
    const double stored = sizeof(T) == 2 ? 0.004 : 1e-6;  // what rounding to T adds, as a part of the value
    for (std::size_t i = 0; i < size; ++i) {
        const double value = test::widened(values[i]);
        const double scale = static_cast<double>(scales[i / Block]);
        CHECK(std::abs(test::widened(back[i]) - value) <= 0.5001 * scale + stored * std::abs(value));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("values come back within half a scale of their block", T, double, float, sk::bf16, sk::fp16) {
    for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 256U, 1000U}) {
        check_round_trip<T, 64>(size);
        check_round_trip<T, 256>(size);
        check_round_trip<T, 16>(size);
    }
}

TEST_CASE("a bad element spoils its own block alone") {
    std::vector<float> values(192, 1.0F);
    values[70] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::int8_t> codes(192);
    std::vector<float> scales(3);
    std::vector<float> back(192);
    sk::quantize(std::span<const float>(values), std::span(codes), std::span(scales));
    sk::dequantize(std::span<const std::int8_t>(codes), std::span<const float>(scales), std::span(back));
    for (std::size_t i = 0; i < 192; ++i) { CHECK(std::isnan(back[i]) == (i >= 64 && i < 128)); }
    CHECK(back[0] == doctest::Approx(1));
}

TEST_CASE("blocks of zeros stay zero") {
    const std::vector<float> values(64);
    std::vector<std::int8_t> codes(64, 5);
    std::vector<float> scales(1, 5);
    sk::quantize(std::span<const float>(values), std::span(codes), std::span(scales));
    CHECK(codes == std::vector<std::int8_t>(64));
    CHECK(scales[0] == 0);
}

TEST_CASE("sizes that disagree are named") {
    const std::vector<float> values(65);
    std::vector<std::int8_t> codes(64);
    std::vector<float> scales(2);
    CHECK_THROWS_WITH_AS(
        sk::quantize(std::span<const float>(values), std::span(codes), std::span(scales), {"user.cpp", 3}),
        "quantize: 64 codes and 2 scales for 65 elements, expected 65 and 2 (user.cpp:3)", std::invalid_argument);
    CHECK_THROWS_WITH_AS(sk::dequantize(std::span<const std::int8_t>(codes), std::span<const float>(scales),
                                        std::span<float>(), {"user.cpp", 3}),
                         "dequantize: 0 elements and 2 scales for 64 codes, expected 64 and 1 (user.cpp:3)",
                         std::invalid_argument);
}

}  // namespace quantize_test
