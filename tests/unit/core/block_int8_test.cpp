// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <shardkit/core/codes.hpp>

namespace block_int8_test {

using shardkit::block_int8;
using shardkit::detail::larger_magnitude;
using Format = shardkit::detail::CodeFormat<block_int8>;
constexpr int encoded(float number, float scale) { return static_cast<int>(Format::encode(number, scale)); }
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(Format::block == 64);
static_assert(Format::blocks(0) == 0 && Format::blocks(1) == 1 && Format::blocks(64) == 1 && Format::blocks(65) == 2);
static_assert(larger_magnitude(1, -2) == 2 && larger_magnitude(3, -2) == 3);
static_assert(Format::scale(127) == 1 && Format::scale(0) == 0);
static_assert(encoded(127, 1) == 127 && encoded(-127, 1) == -127);
static_assert(encoded(0.5F, 1) == 0 && encoded(1.5F, 1) == 2 && encoded(2.5F, 1) == 2);
static_assert(encoded(-0.5F, 1) == 0 && encoded(-1.5F, 1) == -2 && encoded(-0.75F, 1) == -1);
static_assert(Format::decode(block_int8{-3}, 0.5F) == -1.5F);

TEST_CASE("a number that is not finite makes the block's scale NaN and its codes 0") {
    for (const float bad : {infinity, -infinity, not_a_number, -not_a_number}) {
        CHECK(std::isnan(Format::scale(larger_magnitude(1, bad))));
        CHECK(std::isnan(Format::scale(larger_magnitude(larger_magnitude(1, bad), 2))));
    }
    CHECK(encoded(infinity, not_a_number) == 0);
    CHECK(encoded(1, not_a_number) == 0);
    CHECK(std::isnan(Format::decode(block_int8{0}, not_a_number)));
}

TEST_CASE("codes stay in [-127, 127] and values within half a scale, at every magnitude") {
    for (int exponent = -126; exponent <= 127; ++exponent) {
        for (const float part : {1.0F, 1.1F, 1.5F, 1.999F}) {
            const float largest = std::ldexp(part, exponent);
            const float scale = Format::scale(largest);
            for (float fraction = -1; fraction <= 1; fraction += 0.03125F) {
                const float element = fraction * largest;
                const block_int8 code = Format::encode(element, scale);
                CHECK(static_cast<int>(code) >= -127);
                const double error = std::abs(static_cast<double>(Format::decode(code, scale)) - element);
                const double rounding = 1e-5 * static_cast<double>(largest) + 130 * 1.4e-45;
                CHECK(error <= 0.5 * static_cast<double>(scale) + rounding);
            }
            CHECK(encoded(largest, scale) == 127);
            CHECK(encoded(-largest, scale) == -127);
        }
    }
}

TEST_CASE("a scale too small for fp32 gives zeros, not garbage") {
    const float smallest = std::numeric_limits<float>::denorm_min();
    CHECK(Format::scale(smallest) == 0);
    CHECK(encoded(smallest, Format::scale(smallest)) == 0);
}

}  // namespace block_int8_test
