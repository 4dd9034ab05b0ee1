// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardkit {

/// Numbers as signed bytes with one fp32 scale for each block of `Block` of them, counted from the span's start; the
/// last block may be shorter. value = code * scale, scale = largest magnitude of the block / 127.
/// Arithmetic is in fp32 whatever the element type. Host and device run these functions.
/// Bounds:  |value - element| <= scale / 2, up to fp32 rounding, for a scale that is a normal number.
/// A block with an infinite or NaN element, or one beyond fp32's range, has a NaN scale, so that all of its values
/// are NaN and nothing is hidden. A block of zeros has scale 0.
/// Source:  symmetric absmax quantisation, as in ZeRO++, arXiv 2306.10209, section 3.1
template <std::size_t Block = 64>
struct BlockInt8 {
    static_assert(Block > 0 && Block % 16 == 0, "BlockInt8<Block>: Block must be a multiple of 16");

    static constexpr std::size_t block = Block;
    static constexpr float largest_code = 127;

    /// Blocks, and so scales, of `count` elements.
    static constexpr std::size_t blocks(std::size_t count) noexcept { return count / Block + (count % Block != 0); }

    /// The larger of `largest` and the element's magnitude; NaN once there was one.
    static constexpr float larger(float largest, float element) noexcept {
        const float magnitude = element < 0 ? -element : element;
        return largest != largest || magnitude <= largest ? largest : magnitude;
    }
    /// The scale of a block whose magnitudes are at most `largest`.
    static constexpr float scale(float largest) noexcept {
        return largest - largest == 0 ? largest / largest_code : std::numeric_limits<float>::quiet_NaN();
    }
    /// The element's code: element / scale, rounded to nearest, ties to even; 0 where the scale is 0 or NaN.
    static constexpr std::int8_t encode(float element, float scale) noexcept {
        // Beyond 2^23 an fp32 has no fraction left: the addition rounds.
        constexpr float no_fraction = 0x1.8p23F;
        if (!(scale > 0)) { return 0; }
        const float ratio = element / scale;
        const float held = ratio > largest_code ? largest_code : ratio < -largest_code ? -largest_code : ratio;
        return static_cast<std::int8_t>((held + no_fraction) - no_fraction);
    }
    static constexpr float decode(std::int8_t code, float scale) noexcept { return static_cast<float>(code) * scale; }
};

}  // namespace shardkit
