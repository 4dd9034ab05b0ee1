// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>

namespace shardkit {

/// Stores numbers as signed bytes, with one fp32 scale for each block of `Block` numbers, counted from the start of
/// the span; the last block may be shorter. value = code * scale, scale = largest magnitude of the block / 127.
/// Arithmetic is in fp32, whatever the element type. Host and device run these functions.
/// Bounds:  |value - element| <= scale / 2, up to fp32 rounding, for a scale that is a normal number.
/// A block with an infinite or NaN element, or one beyond fp32's range, has a NaN scale: all of its values are NaN,
/// and the error is not hidden. A block of zeros has scale 0.
/// Source:  symmetric absmax quantisation, as in ZeRO++, arXiv 2306.10209, section 3.1
template <std::size_t Block = 64>
struct BlockInt8 {
    static_assert(Block > 0 && Block % 16 == 0, "BlockInt8<Block>: Block must be a multiple of 16");

    static constexpr std::size_t block = Block;
    static constexpr float largest_code = 127;

    /// Returns the number of blocks, and thereby of scales, for `count` elements.
    static constexpr std::size_t blocks(std::size_t count) noexcept { return count / Block + (count % Block != 0); }

    /// Returns the larger of `largest` and the element's magnitude; NaN after any NaN.
    static constexpr float larger(float largest, float element) noexcept {
        return detail::larger_magnitude(largest, element);
    }
    /// Returns the scale of a block whose magnitudes are at most `largest`.
    static constexpr float scale(float largest) noexcept {
        return detail::is_finite(largest) ? largest / largest_code : std::numeric_limits<float>::quiet_NaN();
    }
    /// Returns the element's code: element / scale, rounded to nearest, ties to even; 0 if the scale is 0 or NaN.
    static constexpr std::int8_t encode(float element, float scale) noexcept {
        const bool codes = detail::is_finite(scale) && scale > 0;
        const float ratio = element / (codes ? scale : 1.0F);
        const float least = ratio > -largest_code ? ratio : -largest_code;  // of a NaN too
        const float held = least < largest_code ? least : largest_code;
        // Twice the number, as bits: no part of an expression that -ffast-math may reorder. What is added to it has
        // bits that count twos.
        const auto twice = std::bit_cast<float>(std::bit_cast<std::uint32_t>(held) + (1U << 23U));
        const std::int32_t code =
            std::bit_cast<std::int32_t>(twice + 0x1.8p24F) - std::bit_cast<std::int32_t>(0x1.8p24F);
        return static_cast<std::int8_t>(codes ? code : 0);
    }
    static constexpr float decode(std::int8_t code, float scale) noexcept { return static_cast<float>(code) * scale; }
};

}  // namespace shardkit
