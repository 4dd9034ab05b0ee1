// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace train_gpt {

/// e^x within 2 ulp, without branches or calls, so that loops over it become vector instructions (std::exp sets
/// errno, which no compiler vectorises at default flags). Arguments are limited to the range of normal
/// results: below it the smallest, above it the largest power of two times a mantissa; NaN stays NaN.
/// Source: Cody and Waite's two-part reduction by ln 2, then Taylor's polynomial on [-ln 2 / 2, ln 2 / 2].
template <std::floating_point A>
constexpr A exponential(A x) noexcept {
    constexpr bool wide = std::same_as<A, double>;
    using Bits = std::conditional_t<wide, std::uint64_t, std::uint32_t>;
    constexpr unsigned mantissa = wide ? 52 : 23;
    constexpr A highest = wide ? A(709) : A(88);
    constexpr A lowest = wide ? A(-708) : A(-87);
    // Adding 1.5 * 2^mantissa leaves the rounded integer in the lowest bits of the sum.
    constexpr A magic = wide ? A(0x1.8p52) : A(0x1.8p23);
    constexpr A ln2_high = wide ? A(0x1.62e42fefp-1) : A(0x1.62e4p-1);
    constexpr A ln2_low = wide ? A(0x1.473de6af278edp-34) : A(0x1.7f7d1cp-20);
    x = x > highest ? highest : x;
    x = x < lowest ? lowest : x;
    const A shifted = x * A(0x1.71547652b82fep0) + magic;
    const A n = shifted - magic;
    const A r = (x - n * ln2_high) - n * ln2_low;
    A p{};
    if constexpr (wide) {
        p = A(1.0 / 6227020800.0);
        p = p * r + A(1.0 / 479001600.0);
        p = p * r + A(1.0 / 39916800.0);
        p = p * r + A(1.0 / 3628800.0);
        p = p * r + A(1.0 / 362880.0);
        p = p * r + A(1.0 / 40320.0);
        p = p * r + A(1.0 / 5040.0);
    } else {
        p = A(1.0 / 5040.0);
    }
    p = p * r + A(1.0 / 720.0);
    p = p * r + A(1.0 / 120.0);
    p = p * r + A(1.0 / 24.0);
    p = p * r + A(1.0 / 6.0);
    p = p * r + A(0.5);
    p = (p * r) * r + r + A(1);
    const auto exponent = std::bit_cast<Bits>(shifted) << mantissa;
    return std::bit_cast<A>(std::bit_cast<Bits>(p) + exponent);
}

/// tanh(x) by way of the exponential; within a few ulp of 1 in absolute terms.
template <std::floating_point A>
constexpr A hyperbolic_tangent(A x) noexcept {
    return A(1) - A(2) / (exponential(A(2) * x) + A(1));
}

}  // namespace train_gpt
