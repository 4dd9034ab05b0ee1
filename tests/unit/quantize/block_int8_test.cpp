// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <shardkit/core/block_int8.hpp>

namespace block_int8_test {

using Format = shardkit::BlockInt8<>;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(Format::block == 64);
static_assert(Format::blocks(0) == 0 && Format::blocks(1) == 1 && Format::blocks(64) == 1 && Format::blocks(65) == 2);
static_assert(Format::larger(1, -2) == 2 && Format::larger(3, -2) == 3);
static_assert(Format::scale(127) == 1 && Format::scale(0) == 0);
static_assert(Format::encode(127, 1) == 127 && Format::encode(-127, 1) == -127);
static_assert(Format::encode(0.5F, 1) == 0 && Format::encode(1.5F, 1) == 2 && Format::encode(2.5F, 1) == 2);
static_assert(Format::encode(-0.5F, 1) == 0 && Format::encode(-1.5F, 1) == -2 && Format::encode(-0.75F, 1) == -1);
static_assert(Format::decode(-3, 0.5F) == -1.5F);

TEST_CASE("a number that is not finite makes the block's scale NaN and its codes 0") {
    for (const float bad : {infinity, -infinity, not_a_number, -not_a_number}) {
        CHECK(std::isnan(Format::scale(Format::larger(1, bad))));
        CHECK(std::isnan(Format::scale(Format::larger(Format::larger(1, bad), 2))));
    }
    CHECK(Format::encode(infinity, not_a_number) == 0);
    CHECK(Format::encode(1, not_a_number) == 0);
    CHECK(std::isnan(Format::decode(0, not_a_number)));
}

TEST_CASE("codes stay in [-127, 127] and values within half a scale, at every magnitude") {
    for (int exponent = -126; exponent <= 127; ++exponent) {
        for (const float part : {1.0F, 1.1F, 1.5F, 1.999F}) {
            const float largest = std::ldexp(part, exponent);
            const float scale = Format::scale(largest);
            for (float fraction = -1; fraction <= 1; fraction += 0.03125F) {
                const float element = fraction * largest;
                const std::int8_t code = Format::encode(element, scale);
                CHECK(code >= -127);
                const double error = std::abs(static_cast<double>(Format::decode(code, scale)) - element);
                const double rounding = 1e-5 * static_cast<double>(largest) + 130 * 1.4e-45;
                CHECK(error <= 0.5 * static_cast<double>(scale) + rounding);
            }
            CHECK(Format::encode(largest, scale) == 127);
            CHECK(Format::encode(-largest, scale) == -127);
        }
    }
}

TEST_CASE("a scale too small for fp32 gives zeros, not garbage") {
    const float smallest = std::numeric_limits<float>::denorm_min();
    CHECK(Format::scale(smallest) == 0);
    CHECK(Format::encode(smallest, Format::scale(smallest)) == 0);
}

}  // namespace block_int8_test
