// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>

namespace shardkit {

/// Stores 32 numbers as a byte each and a power of two, their scale, as fp32. A byte is the first bits of the
/// floating-point number |number| / scale + 2: 3 of its exponent, and 4 of its mantissa beside the number's sign, or
/// 5 for squares, which have none. So small numbers beside a large one keep more digits than in even steps, and all
/// arithmetic with scales is exact. The scale is the least power of two whose 494-fold is no less than any number.
/// A number is rounded to one of the two neighbours at random, so that its mean is the number: rounded to the
/// nearest, an average that moves by less than half a step would never move. A square above 0 has no code of 0, so
/// that no update divides by the root of a lost one.
/// Bounds:  an error is below the distance of two neighbours, (|number| + 2 scale) / 16, or / 32 for squares. So the
///          least number above 0 is scale / 8, or scale / 16. A block with an infinite or NaN number has a NaN scale:
///          all of its numbers become NaN, and the error is not hidden. No scale is below 2^-103, so that no result
///          is a subnormal number, which some processors take for 0.
/// Functions are for numbers and for short vectors, on host and device.
/// Source:  a shared power of two: OCP Microscaling Formats 1.0; companding by an offset: ITU-T G.711
struct Block8 {
    static constexpr std::size_t block = 32;
    static constexpr std::size_t blocks(std::size_t elements) noexcept { return (elements + block - 1) / block; }

    /// The bits of a fraction of a code, and thereby of a draw.
    template <bool Square>
    static constexpr std::uint32_t drawn_bits = Square ? 18 : 19;

    /// Returns the scale of a block whose largest magnitude is `largest`.
    static constexpr float scale(float largest) noexcept {
        if (!detail::is_finite(largest)) { return std::numeric_limits<float>::quiet_NaN(); }
        // 494 = 247/128 * 2^8: with the carry, the exponent is one more where the fraction is above 247/128.
        const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(largest) + (0x7f'ffffU - 0x77'0000U)) >> 23U;
        return std::bit_cast<float>((exponent > least_exponent + 8 ? exponent - 8 : least_exponent) << 23U);
    }
    /// Returns 1 / scale, exactly; 0 of a NaN.
    static constexpr float inverse(float scale) noexcept {
        const auto bits = std::bit_cast<std::uint32_t>(scale);
        return bits < 0x7f80'0000U ? std::bit_cast<float>((254U << 23U) - bits) : 0.0F;
    }

    /// Returns a word whose lowest byte is the code of a number. `draw`: drawn_bits<Square> bits, uniformly
    /// distributed. V, W: float and std::uint32_t, or short vectors of them.
    template <bool Square, class V, class W>
    [[gnu::always_inline]] static constexpr W encode(const V& number, const V& inverse, const W& draw) {
        using detail::as_number;
        using detail::as_word;
        using detail::larger_word;
        using detail::smaller_word;
        const W word = as_word(number);
        if constexpr (Square) {
            const W code = (as_word(V(number * inverse + 2.0F)) + draw) >> 18U;  // above a multiple of 256
            return larger_word(code, W(smaller_word(word, 1U) + (offset >> 18U)));
        } else {
            const V magnitude = as_number(W(detail::magnitude_word(number)));
            return ((as_word(V(magnitude * inverse + 2.0F)) + draw) >> 19U & 0x7fU) | (word >> 24U & 0x80U);
        }
    }
    /// Returns the number of a code, a word below 256.
    template <bool Square, class V, class W>
    [[gnu::always_inline]] static constexpr V decode(const W& code, const V& scale) {
        using detail::as_number;
        using detail::as_word;
        if constexpr (Square) {
            return (as_number(W(code << 18U | offset)) - 2.0F) * scale;
        } else {
            const V magnitude = (as_number(W((code << 19U & 0x03f8'0000U) | offset)) - 2.0F) * scale;
            return as_number(W(as_word(magnitude) | (code << 24U & 0x8000'0000U)));
        }
    }

  private:
    static constexpr std::uint32_t offset = 0x4000'0000U;  // the bits of 2
    static constexpr std::uint32_t least_exponent = 127 - 103;
};

}  // namespace shardkit
