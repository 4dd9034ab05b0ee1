// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>

namespace block8_test {

namespace {

using shardkit::Block8;

/// The number that `code` stands for, by the definition.
double by_definition(bool square, unsigned code, double scale) {
    const unsigned steps = square ? 32 : 16;  // between powers of two
    const unsigned magnitude = square ? code : code % 128;
    const double number =
        std::ldexp(1 + static_cast<double>(magnitude % steps) / steps, static_cast<int>(magnitude / steps) + 1);
    return (!square && code >= 128 ? -(number - 2) : number - 2) * scale;
}
/// The scale by the definition: the least power of two from 2^-103 on whose 494-fold is no less.
double scale_by_definition(double largest) {
    double scale = 0x1p-103;
    while (494 * scale < largest) { scale *= 2; }
    return scale;
}
template <bool Square>
unsigned code_of(float number, float scale, std::uint32_t draw) {
    return Block8::encode<Square>(number, Block8::inverse(scale), draw) & 0xffU;
}
template <bool Square>
float number_of(unsigned code, float scale) {
    return Block8::decode<Square>(std::uint32_t{code}, scale);
}

template <bool Square>
void check_number(float number, float scale) {
    CAPTURE(number);
    CAPTURE(scale);
    constexpr std::uint32_t draws = 1U << Block8::drawn_bits<Square>;
    double mean = 0;
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    for (std::uint32_t draw = 0; draw < draws; ++draw) {
        const double value = by_definition(Square, code_of<Square>(number, scale, draw), scale);
        least = std::min(least, value);
        most = std::max(most, value);
        mean += value / draws;
    }
    const double given = number;
    const double step = (std::fabs(given) + 2.0 * scale) / (Square ? 32 : 16);
    CHECK(most - least <= step * 1.07);  // neighbours, or one code; above 1 where they lie on both sides of a power
    CHECK(std::max(std::fabs(most - given), std::fabs(least - given)) <= step);
    const bool lifted = Square && number > 0 && number < scale / 16;
    CHECK((least <= given || lifted));
    CHECK(most >= given - scale * 0x1p-22);
    // Unbiased, up to the rounding of the ratio in fp32.
    if (!lifted) { CHECK(std::fabs(mean - given) <= scale * 0x1p-22 + std::fabs(given) * 0x1p-23); }
    if (lifted) { CHECK(least == by_definition(true, 1, scale)); }
}

}  // namespace

TEST_CASE("Block8 rounds to a neighbour, so that the mean over all draws is the number") {
    for (const float largest : {494.0F, 3.7e-9F, 2.5e30F, 1.0F}) {
        const float scale = Block8::scale(largest);
        for (const double ratio : {0.0, 1e-7, 1e-5, 2e-4, 1e-3, 4e-3, 0.01, 0.1, 0.2500001, 0.5, 0.77, 0.999, 1.0}) {
            const auto number = static_cast<float>(ratio * static_cast<double>(largest));
            check_number<true>(number, scale);
            check_number<false>(number, scale);
            check_number<false>(-number, scale);
        }
    }
}

TEST_CASE("Block8's scale is the least power of two whose 494-fold is no less than the largest number") {
    for (const float largest : {1.0F, 493.9F, 494.0F, 494.1F, 0.1F, 3.3e-20F, 1e30F, 3.4e38F, 3.2e38F, 0x1p-100F,
                                0x1p-126F, 0x1p-149F, 0.0F, 0x1.eep-96F, 0x1.ef0002p-96F}) {
        CAPTURE(largest);
        CHECK(static_cast<double>(Block8::scale(largest)) == scale_by_definition(largest));
        CHECK(Block8::scale(largest) * Block8::inverse(Block8::scale(largest)) == 1);
    }
}

TEST_CASE("Block8's codes stand for numbers by the definition, and are written again") {
    for (const float scale : {0x1p-103F, 0x1p-9F, 1.0F, 0x1p119F}) {
        for (unsigned code = 0; code < 256; ++code) {
            CAPTURE(code);
            const float number = number_of<false>(code, scale);
            const float square = number_of<true>(code, scale);
            CHECK(static_cast<double>(number) == by_definition(false, code, scale));
            CHECK(static_cast<double>(square) == by_definition(true, code, scale));
            for (const std::uint32_t draw : {0U, (1U << 18U) - 1}) {  // no draw moves what a code stands for
                CHECK(code_of<false>(number, scale, draw) == code);
                CHECK(code_of<true>(square, scale, draw) == code);
            }
        }
        CHECK(number_of<false>(0, 0.0F) == 0);  // bytes of zeros are zeros
        CHECK(number_of<true>(0, 0.0F) == 0);
    }
}

TEST_CASE("Block8 keeps zero, no square above 0 becomes 0, and no subnormal number counts") {
    for (const std::uint32_t draw : {0U, 1U << 17U, (1U << 18U) - 1}) {
        for (const float largest : {1.0F, 0.1F, 3.3e-20F, 0x1p-126F, 0.0F, 3.4e38F}) {
            const float scale = Block8::scale(largest);
            CHECK(code_of<true>(0.0F, scale, draw) == 0);
            CHECK(code_of<false>(0.0F, scale, draw) == 0);
            CHECK(code_of<true>(0x1p-149F, scale, draw) == 1);
            CHECK(code_of<false>(0x1.fffffcp-127F, scale, draw) == 0);
            CHECK(code_of<false>(-0x1.fffffcp-127F, scale, draw) == 128);
            // The largest draw does not carry the largest number beyond the last code.
            CHECK(std::fabs(number_of<false>(code_of<false>(-largest, scale, 0x7ffff), scale)) <= 494 * scale);
            CHECK(number_of<true>(code_of<true>(largest, scale, 0x3ffff), scale) <= 502 * scale);
        }
        CHECK(code_of<true>(1e-30F, 1.0F, draw) == 1);
    }
    CHECK(number_of<true>(1, Block8::scale(0.0F)) >= std::numeric_limits<float>::min());
}

TEST_CASE("Block8 does not hide infinities and NaN") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : {infinity, -infinity, nan, -nan}) {
        for (const std::vector<float>& numbers : {std::vector<float>{3, bad, 1e30F}, {bad}, {1, 2, bad}}) {
            const float scale = Block8::scale(shardkit::detail::largest_magnitude(numbers.data(), numbers.size()));
            CHECK(std::isnan(scale));
            for (const float number : numbers) {
                CHECK(std::isnan(number_of<false>(code_of<false>(number, scale, 77), scale)));
                CHECK(std::isnan(number_of<true>(code_of<true>(number, scale, 77), scale)));
            }
        }
    }
}

}  // namespace block8_test
