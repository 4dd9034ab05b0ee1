// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace shardkit::test {

/// A binary floating-point format by its two parameters; `precision` counts the implicit bit.
struct BinaryFormat {
    int precision;
    int exponent_bits;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    int smallest_exponent() const { return 1 - bias(); }
    long double largest() const { return std::ldexp(2.0L - std::ldexp(1.0L, 1 - precision), bias()); }
};

inline constexpr BinaryFormat bf16_format{8, 8};
inline constexpr BinaryFormat fp16_format{11, 5};

/// The value that IEEE 754 gives to a 16-bit pattern, from its fields.
inline long double decode(BinaryFormat format, std::uint16_t bits) {
    const int fraction_bits = format.precision - 1;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits >> fraction_bits) & ((1 << format.exponent_bits) - 1);
    const long double sign = (bits & 0x8000) != 0 ? -1.0L : 1.0L;
    if (exponent == (1 << format.exponent_bits) - 1) { return fraction == 0 ? sign * INFINITY : std::nanl(""); }
    if (exponent == 0) {
        return sign * std::ldexp(static_cast<long double>(fraction), format.smallest_exponent() - fraction_bits);
    }
    return sign * std::ldexp(static_cast<long double>(fraction + (1 << fraction_bits)),
                             exponent - format.bias() - fraction_bits);
}

/// `value` rounded to the format, to nearest, ties to even, in long double: scale the last place to one, round
/// to an integer, scale back.
inline long double round_to(BinaryFormat format, float value) {
    if (!std::isfinite(value) || value == 0) { return value; }
    const long double exact = value;
    const int exponent = std::max(std::ilogb(exact), format.smallest_exponent());
    const int last_place = exponent - (format.precision - 1);
    const long double rounded = std::ldexp(std::nearbyint(std::ldexp(exact, -last_place)), last_place);
    return std::fabs(rounded) > format.largest() ? std::copysign(static_cast<long double>(INFINITY), exact) : rounded;
}

/// Floats where rounding to the format can go wrong: every value of it, every midpoint between neighbours,
/// and the floats next to both; then random bit patterns.
inline std::vector<float> rounding_cases(BinaryFormat format) {
    std::vector<float> cases;
    const auto add_with_neighbours = [&](float value) {
        cases.push_back(value);
        cases.push_back(std::nextafter(value, -INFINITY));
        cases.push_back(std::nextafter(value, INFINITY));
    };
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        const long double value = decode(format, static_cast<std::uint16_t>(bits));
        cases.push_back(static_cast<float>(value));
        if (!std::isfinite(value)) { continue; }
        const long double next = decode(format, static_cast<std::uint16_t>(bits + 1));
        // Past the largest value the midpoint is that to the value that the next exponent would start with.
        const long double upper =
            std::isfinite(next) ? next : std::copysign(std::ldexp(1.0L, format.bias() + 1), next);
        add_with_neighbours(static_cast<float>(value));
        add_with_neighbours(static_cast<float>((value + upper) / 2));
    }
    std::mt19937 random(7);
    for (int i = 0; i < 300'000; ++i) { cases.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random()))); }
    return cases;
}

}  // namespace shardkit::test
