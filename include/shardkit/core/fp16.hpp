// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace shardkit {

/// An IEEE 754 binary16 number. For storage only; arithmetic is in float. Conversion from float rounds to nearest,
/// ties to even, overflows to infinity from 65520 on and keeps subnormals; NaN stays a quiet NaN.
struct fp16 {
    std::uint16_t bits{};

    constexpr fp16() noexcept = default;
    constexpr explicit fp16(float value) noexcept : bits(round(value)) {}
    constexpr explicit operator float() const noexcept {
        const std::uint32_t magnitude = bits & 0x7fffU;
        const std::uint32_t sign = (bits & 0x8000U) << 16U;
        // The exponent is 112 too small, and for infinity and NaN by another 112. A subnormal is read as a number
        // that begins with 1, which is then subtracted. So no intermediate float is subnormal, which a processor set
        // up by -ffast-math would treat as zero.
        const std::uint32_t word = (magnitude << 13U) + (magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U);
        const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(word + 0x00800000U) - 0x1p-14F);
        return std::bit_cast<float>(sign | (magnitude < 0x400U ? subnormal : word));
    }
    friend constexpr bool operator==(fp16 a, fp16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }

  private:
    static constexpr std::uint16_t round(float value) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t sign = (word >> 16U) & 0x8000U;
        const std::uint32_t magnitude = word & 0x7fffffffU;
        std::uint32_t half = 0;
        if (magnitude > 0x7f800000U) {
            half = 0x7e00U;
        } else if (magnitude >= 0x477ff000U) {  // 65520: half way past the largest finite value
            half = 0x7c00U;
        } else if (magnitude < 0x38800000U) {
            // One half has an ulp of 2^-24, the spacing of binary16 subnormals: the addition rounds.
            half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
        } else {
            half = (magnitude + 0xfffU + ((magnitude >> 13U) & 1U) - 0x38000000U) >> 13U;
        }
        return static_cast<std::uint16_t>(sign | half);
    }
};

}  // namespace shardkit
