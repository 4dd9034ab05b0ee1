// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>

namespace shardkit {

/// Stores 32 numbers as a byte each and their largest magnitude, the scale, as fp32. A byte is the root of a number's
/// ratio to the scale: in 127 steps beside a sign, and in 255 for squares, which have none. So small numbers beside a
/// large one keep more digits than in even steps: the least one above 0 is 1 / 16,129 or 1 / 65,025 of the largest.
/// A number is rounded to one of the two neighbours at random, so that its mean is the number: rounded to the
/// nearest, an average that moves by less than half a step would never move. A square above 0 has no code of 0, so
/// that no update divides by the root of a lost one. Bounds:  an error is below the distance of two neighbours, (2k +
/// 1) / 127^2 or / 255^2 of the scale behind code k:
///          at most 1.6 % and 0.8 % of the scale. The largest number itself is exact. A block with an infinite or NaN
///          number has a NaN scale: all of its numbers become NaN, and the error is not hidden. Blocks below 2^-126
///          are zeros.
/// Functions are for numbers and for short vectors, on host and device.
/// Source:  blocks: bitsandbytes, arXiv 2110.02861; a root instead of a table: flashoptim, for the second moment
struct Block8 {
    static constexpr std::size_t block = 32;
    static constexpr std::size_t blocks(std::size_t elements) noexcept { return (elements + block - 1) / block; }

    /// Returns the code of 0.
    static constexpr std::uint8_t zero(bool square) noexcept { return square ? 0 : 128; }
    /// Returns the larger of `largest` and the number's magnitude; NaN after any NaN, under -Ofast too.
    static constexpr float larger(float largest, float number) noexcept {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(number) & 0x7fff'ffffU;
        return magnitude > std::bit_cast<std::uint32_t>(largest) ? std::bit_cast<float>(magnitude) : largest;
    }
    /// Returns the scale of a block whose magnitudes are at most `largest`.
    static constexpr float scale(float largest) noexcept {
        if (!detail::is_finite(largest)) { return std::numeric_limits<float>::quiet_NaN(); }
        return largest < 0x1p-126F ? 0.0F : largest;
    }
    /// Returns what a number of that block is multiplied by to be a ratio.
    static constexpr float inverse(float largest) noexcept { return largest < 0x1p-126F ? 0.0F : 1 / largest; }

    /// Returns the code of a number, 0 to 255, as a number. `draw`: in [0, 1), uniformly distributed.
    template <bool Square, class V>
    [[gnu::always_inline]] static constexpr V encode(V number, V inverse, V draw) {
        using shardkit::rules::select;
        using shardkit::rules::square_root;
        using shardkit::rules::truncated;
        constexpr float steps = Square ? 255.0F : 127.0F;
        constexpr float most = steps * steps;
        const V scaled = magnitude<Square>(number) * inverse * most;
        const V ratio = select(scaled < most, scaled, V(most));
        const V below = truncated(square_root(ratio));
        const V up = select(draw * (2.0F * below + 1.0F) < ratio - below * below, V(1.0F), V(0.0F));
        if constexpr (Square) {
            const V code = below + up;
            return select(code < 1.0F, select(number > 0.0F, V(1.0F), V(0.0F)), code);
        } else {
            return 128.0F + select(number < 0.0F, V(0.0F - (below + up)), V(below + up));
        }
    }
    /// Returns the number of a code.
    template <bool Square, class V>
    [[gnu::always_inline]] static constexpr V decode(V code, V scale) {
        if constexpr (Square) {
            const V root = code * (1.0F / 255.0F);
            return root * root * scale;
        } else {
            const V root = (code - 128.0F) * (1.0F / 127.0F);
            return root * magnitude<false>(root) * scale;
        }
    }

  private:
    template <bool Square, class V>
    [[gnu::always_inline]] static constexpr V magnitude(V value) {
        using shardkit::rules::absolute;
        if constexpr (Square) {
            return value;
        } else {
            return absolute(value);
        }
    }
};

}  // namespace shardkit
