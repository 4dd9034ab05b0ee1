// SPDX-License-Identifier: Apache-2.0
// E4M3 by its definition, in fp64: which number a code is, and that a number gets the nearest one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/core/codes.hpp>

namespace codes_test {

namespace {

namespace sk = shardkit;
using Format = sk::detail::CodeFormat<sk::e4m3>;

/// The number of a code without a sign: OCP 8-bit Floating Point Specification, 2023, table 1.
double number_of(unsigned code) {
    const unsigned exponent = code >> 3U;
    const double fraction = (code & 7U) / 8.0;
    return exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, static_cast<int>(exponent) - 7);
}

}  // namespace

TEST_CASE("every code of e4m3 is its number times the scale, and back") {
    for (unsigned code = 0; code < 0x7fU; ++code) {
        CAPTURE(code);
        for (const float scale : {1.0F, 0x1p-126F, 0x1p60F}) {
            const double number = number_of(code) * static_cast<double>(scale);
            const bool held = number == 0 || number >= 0x1p-126;  // flushed to zero, or not
            for (const unsigned sign : {0U, 0x80U}) {
                const auto coded = static_cast<sk::e4m3>(sign | code);
                const double expected = sign != 0 ? -number : number;
                CHECK(static_cast<double>(Format::decode(coded, scale)) == expected);
                if (held && number != 0) { CHECK(Format::encode(static_cast<float>(expected), scale) == coded); }
            }
        }
    }
    CHECK(Format::encode(0.0F, 1.0F) == sk::e4m3{0});
    CHECK(std::isnan(Format::decode(sk::e4m3{0x7f}, 1.0F)));
}

TEST_CASE("a number becomes the nearest code, ties to even, within a sixteenth of it") {
    std::vector<double> all;
    for (unsigned code = 0; code < 0x7fU; ++code) { all.push_back(number_of(code)); }
    std::size_t wrong = 0;
    const auto check = [&](float number) {
        const double exact = static_cast<double>(number);
        const auto above = std::min(std::lower_bound(all.begin(), all.end(), exact), std::prev(all.end()));
        const auto below = above == all.begin() || *above <= exact ? above : std::prev(above);
        const auto even = (above - all.begin()) % 2 == 0 ? above : below;
        const double to_above = *above - exact;
        const double to_below = exact - *below;
        const double expected = *(to_above < to_below ? above : to_below < to_above ? below : even);
        const double value = static_cast<double>(Format::decode(Format::encode(number, 1.0F), 1.0F));
        const double negative = static_cast<double>(Format::decode(Format::encode(-number, 1.0F), 1.0F));
        const double bound = std::max(exact / 16, 0x1p-10);
        wrong += value == expected && negative == -expected && std::abs(value - exact) <= bound ? 0U : 1U;
    };
    for (std::uint32_t word = 0; word <= 0x43e0'0000U; word += 4097) { check(std::bit_cast<float>(word)); }
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        const auto tie = static_cast<float>((all[i] + all[i + 1]) / 2);
        for (const float number : {std::nextafter(tie, 0.0F), tie, std::nextafter(tie, 1e9F)}) { check(number); }
    }
    CHECK(wrong == 0);
}

TEST_CASE("the scale of e4m3 is the least power of two with which no code is beyond 448") {
    for (const double largest : {1e-30, 0.001, 0.4374, 0.4375, 0.43751, 1.0, 447.9, 448.0, 448.1, 900.0, 1e30}) {
        CAPTURE(largest);
        const auto scale = static_cast<double>(Format::scale(static_cast<float>(largest)));
        CHECK(scale == std::exp2(std::ceil(std::log2(static_cast<double>(static_cast<float>(largest)) / 448))));
    }
    CHECK(Format::scale(0) == 0x1p-126F);
    CHECK(Format::scale(std::numeric_limits<float>::denorm_min()) == 0x1p-126F);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        const float scale = Format::scale(bad);
        CHECK(std::isnan(scale));
        CHECK(std::isnan(Format::decode(Format::encode(1.0F, scale), scale)));
    }
}

static_assert(sk::detail::is_coded<sk::e4m3> && sk::detail::is_coded<sk::block_int8>);
static_assert(!sk::detail::is_coded<sk::bf16> && !sk::detail::is_coded<std::byte>);

}  // namespace codes_test
