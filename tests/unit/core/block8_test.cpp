// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <shardkit/core/block8.hpp>

namespace block8_test {

namespace {

using shardkit::Block8;

constexpr double draws = 65536;

/// The number that `code` stands for, by the definition.
double by_definition(bool square, double code, double scale) {
    const double root = square ? code / 255 : (code - 128) / 127;
    return root * std::fabs(root) * scale;
}

template <bool Square>
void check_number(float number, float scale) {
    CAPTURE(number);
    const float inverse = Block8::inverse(scale);
    double mean = 0;
    double least = 256;
    double most = -1;
    for (std::uint32_t draw = 0; draw < 65536; ++draw) {
        const double code = Block8::encode<Square>(number, inverse, static_cast<float>(draw) * 0x1p-16F);
        least = std::min(least, code);
        most = std::max(most, code);
        mean += by_definition(Square, code, scale) / draws;
    }
    CHECK(least >= 0);
    CHECK(most <= 255);
    CHECK(most - least <= 1);  // neighbours, or one code
    const double low = by_definition(Square, least, scale);
    const double high = by_definition(Square, most, scale);
    const double slack = 4e-7 * scale;
    const bool lifted = Square && number > 0 && by_definition(true, 1, scale) > number;
    CHECK((low <= number + slack || lifted));
    CHECK(high >= number - slack);
    // Unbiased, up to the draws' steps of 2^-16 and the rounding of the ratio.
    if (!lifted) { CHECK(std::fabs(mean - number) <= (high - low) / draws * 2 + slack); }
    CHECK(high - low <= (Square ? 0.008 : 0.016) * scale);
}

}  // namespace

TEST_CASE("Block8 rounds to a neighbour, so that the mean over all draws is the number") {
    for (const float scale : {1.0F, 3.7e-9F, 2.5e30F}) {
        for (const double ratio : {0.0, 1e-7, 1e-5, 6.3e-5, 1e-3, 0.01, 0.1, 0.2500001, 0.5, 0.77, 0.999, 1.0}) {
            const auto number = static_cast<float>(ratio * static_cast<double>(scale));
            check_number<true>(number, scale);
            check_number<false>(number, scale);
            check_number<false>(-number, scale);
        }
    }
}

TEST_CASE("Block8 keeps the largest number and zero exactly, and no square above 0 becomes 0") {
    for (const float draw : {0.0F, 0.3F, 65535 * 0x1p-16F}) {
        for (const float scale : {1.0F, 0.1F, 3.3e-20F, 0x1p-126F, 3.4e38F}) {
            const float inverse = Block8::inverse(scale);
            CHECK(Block8::decode<true>(Block8::encode<true>(scale, inverse, draw), scale) == scale);
            CHECK(Block8::decode<false>(Block8::encode<false>(scale, inverse, draw), scale) == scale);
            CHECK(Block8::decode<false>(Block8::encode<false>(-scale, inverse, draw), scale) == -scale);
            CHECK(Block8::decode<true>(Block8::encode<true>(0.0F, inverse, draw), scale) == 0);
            CHECK(Block8::decode<false>(Block8::encode<false>(0.0F, inverse, draw), scale) == 0);
        }
        CHECK(Block8::encode<true>(1e-30F, Block8::inverse(1), draw) == 1);
    }
    // Blocks below the normal numbers are zeros, and bytes of zeros are zeros.
    CHECK(Block8::scale(0x1p-127F) == 0);
    CHECK(Block8::encode<false>(0x1p-127F, Block8::inverse(0x1p-127F), 0.5F) == 128);
    CHECK(Block8::decode<false>(0.0F, 0.0F) == 0);
    CHECK(Block8::decode<true>(0.0F, 0.0F) == 0);
}

TEST_CASE("Block8 does not hide infinities and NaN, and still writes a code") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : {infinity, -infinity, nan, -nan}) {
        float largest = Block8::larger(Block8::larger(0, 3.0F), bad);
        largest = Block8::larger(largest, 1e30F);
        CHECK(std::isnan(Block8::scale(largest)));
        for (const float number : {bad, 3.0F, 0.0F}) {
            const float code = Block8::encode<false>(number, Block8::inverse(largest), 0.5F);
            const float square = Block8::encode<true>(number, Block8::inverse(largest), 0.5F);
            CHECK((code >= 0 && code <= 255));
            CHECK((square >= 0 && square <= 255));
            CHECK(std::isnan(Block8::decode<false>(code, Block8::scale(largest))));
            CHECK(std::isnan(Block8::decode<true>(square, Block8::scale(largest))));
        }
    }
}

TEST_CASE("Block8: what a block holds is written again with the same codes, to the nearest") {
    const float scale = 0.37F;
    for (int code = 1; code < 256; ++code) {
        const auto given = static_cast<float>(code);
        const float number = Block8::decode<false>(given, scale);
        const float square = Block8::decode<true>(given, scale);
        CHECK(Block8::encode<false>(number, Block8::inverse(scale), 0.5F) == given);
        CHECK(Block8::encode<true>(square, Block8::inverse(scale), 0.5F) == given);
    }
}

}  // namespace block8_test
