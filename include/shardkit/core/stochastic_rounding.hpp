// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <shardkit/core/element.hpp>

namespace shardkit::rules {

/// Computes Philox4x32-10: four pseudo-random words from a counter of four words and a key of two.
/// Source:  Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
        const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
        counter = {static_cast<std::uint32_t>(second >> 32U) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(first >> 32U) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(first)};
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    return counter;
}

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {

/// The halves of a word, as philox takes them.
constexpr std::uint32_t low(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32U); }

/// Returns the draws of the elements 8 * block and the seven after it: 16 random bits for each, which depend only on
/// (seed, step, element): half word `element % 8` of philox with the counter {element / 8, step} and the key `seed`,
/// lower words and halves first.
constexpr std::array<std::uint32_t, 4> draws_of_block(std::uint64_t seed, std::uint64_t step,
                                                      std::uint64_t block) noexcept {
    return rules::philox({low(block), high(block), low(step), high(step)}, {low(seed), high(seed)});
}

/// Returns draw number i of a block or a pack.
constexpr std::uint32_t draw_of(const std::array<std::uint32_t, 4>& words, std::uint64_t i) noexcept {
    return words[i / 2] >> (i % 2 * 16) & 0xFFFFU;
}
/// The draws of N adjacent elements, all made at once. With constant indices they stay in registers, where a
/// word that is chosen by an element's number lies in memory.
template <std::size_t N>
requires(N >= 1 && N <= 8) class PackDraws {
  public:
    /// `element` is the number of the first one.
    constexpr PackDraws(std::uint64_t seed, std::uint64_t step, std::uint64_t element) noexcept {
        const std::uint64_t block = element / 8;
        const auto skipped = static_cast<std::uint32_t>(element % 8);
        const std::array<std::uint32_t, 4> own = draws_of_block(seed, step, block);
        std::array<std::uint32_t, 4> next{};
        if (skipped + N > 8) { next = draws_of_block(seed, step, block + 1); }
        std::array<std::uint32_t, 8> words{own[0], own[1], own[2], own[3], next[0], next[1], next[2], next[3]};
        // Those of `skipped` elements before are shifted out: four words, two, and half a one.
        for (std::size_t i = 0; i < 6; ++i) { words[i] = (skipped & 4U) != 0 ? words[i + 2] : words[i]; }
        for (std::size_t i = 0; i < 5; ++i) { words[i] = (skipped & 2U) != 0 ? words[i + 1] : words[i]; }
        for (std::size_t i = 0; i < 4; ++i) {
            words_[i] = (skipped & 1U) != 0 ? words[i] >> 16U | words[i + 1] << 16U : words[i];
        }
    }

    constexpr std::uint32_t operator[](std::size_t i) const noexcept { return draw_of(words_, i); }

  private:
    std::array<std::uint32_t, 4> words_{};
};

/// Returns the bits of one of the two bf16 values next to `value`. The probability of rounding away from zero is the
/// distance from the other one, in units of 2^-16 of their spacing. `draw` is below 2^16.
constexpr std::uint16_t bf16_bits(float value, std::uint32_t draw) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7f800000U) == 0x7f800000U) { return bf16(value).bits; }
    return static_cast<std::uint16_t>((word + draw) >> 16U);
}
/// Does the same for fp16, whose spacing is that of 2^13 or more floats, with the upper bits of the draw.
constexpr std::uint16_t fp16_bits(float value, std::uint32_t draw) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffU;
    if (magnitude >= 0x47800000U) { return fp16(value).bits; }  // 65536 and more, infinite, NaN
    // Fixed-point integers of 24 bits before and 16 behind the binary point, in units of binary16's least spacing if
    // the value is that small; `shift` accounts for the wider spacing of larger exponents.
    const std::uint32_t exponent = magnitude >> 23U;
    const std::uint32_t sign = word >> 16U & 0x8000U;
    if (exponent < 113) {     // below 2^-14: subnormal, a multiple of 2^-24
        if (exponent < 86) {  // below 2^-41: not one draw is so small
            return static_cast<std::uint16_t>(sign);
        }
        const std::uint64_t mantissa = (magnitude & 0x007fffffU) | 0x00800000U;  // times 2^(exponent - 150)
        const std::uint64_t units = (mantissa << 16U) >> (126 - exponent);       // of 2^-24, with 16 bits behind
        return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>((units + draw) >> 16U));
    }
    return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000U + (draw >> 3U)) >> 13U);
}

}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// Rounds `value` to a 16-bit element, up or down with the probabilities that make its mean `value`: exactly for
/// bf16, and for fp16 except for amounts of 2^-13 of its spacing and less. Values beyond the largest finite element
/// may become infinite, as in rounding to nearest; infinity and NaN stay.
/// @pre     draw < 2^16, uniformly distributed
/// Source:  Gupta et al., Deep Learning with Limited Numerical Precision, arXiv 1502.02551
template <FloatingElement T>
requires(sizeof(T) == 2) constexpr T round_stochastically(float value, std::uint32_t draw) noexcept {
    if constexpr (element_type_of<T> == ElementType::bf16) {
        return std::bit_cast<T>(detail::bf16_bits(value, draw));
    } else {
        return std::bit_cast<T>(detail::fp16_bits(value, draw));
    }
}

}  // namespace shardkit::rules
