// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

namespace shardkit::rules {

// Functors of kernels run on values and on short vectors of values. They call these functions unqualified, so that
// argument-dependent lookup finds a short vector's own overload, and one functor serves both:
//     using shardkit::rules::select;
//     parameter = select(gradient > A{0}, parameter, V(A{0}));

/// Returns the correctly rounded square root.
template <std::floating_point A>
constexpr A square_root(A value) {
    // What std::sqrt calls, on a device too: <cmath> takes as long as a tenth of a small trainer's file.
    return std::same_as<A, float> ? static_cast<A>(__builtin_sqrtf(static_cast<float>(value)))
                                  : static_cast<A>(__builtin_sqrt(static_cast<double>(value)));
}

/// Returns the magnitude.
template <std::floating_point A>
constexpr A absolute(A value) {
    return value < 0 ? -value : value;
}

/// Returns `yes` if `which` is true, otherwise `no`; for short vectors lane by lane.
template <std::floating_point A>
constexpr A select(bool which, A yes, A no) {
    return which ? yes : no;
}

}  // namespace shardkit::rules

namespace shardkit::detail {

// The same of words, for codes: called unqualified too.

/// Return the bits of a number, and the number of bits.
constexpr std::uint32_t as_word(float number) { return std::bit_cast<std::uint32_t>(number); }
constexpr float as_number(std::uint32_t word) { return std::bit_cast<float>(word); }

/// Return the smaller and the larger one, without a sign.
constexpr std::uint32_t smaller_word(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
constexpr std::uint32_t larger_word(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

/// Returns the bits of a number without its sign. They have the order of magnitudes, infinity and then NaN behind
/// them, under -Ofast too.
template <class V>
[[gnu::always_inline]] constexpr auto magnitude_word(const V& number) {
    return as_word(number) & 0x7fff'ffffU;
}
/// Returns the larger of `largest` and the number's magnitude; NaN after any NaN.
constexpr float larger_magnitude(float largest, float number) {
    return as_number(larger_word(as_word(largest), magnitude_word(number)));
}

}  // namespace shardkit::detail
