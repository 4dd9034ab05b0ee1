// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace shardkit {

/// A bfloat16 number: the upper half of an IEEE 754 binary32. For storage only; arithmetic is in float. Conversion
/// from float rounds to nearest, ties to even; NaN stays a quiet NaN.
struct bf16 {
    std::uint16_t bits{};

    constexpr bf16() noexcept = default;
    constexpr explicit bf16(float value) noexcept : bits(round(value)) {}
    constexpr explicit operator float() const noexcept {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    }
    friend constexpr bool operator==(bf16 a, bf16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }

  private:
    static constexpr std::uint16_t round(float value) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = word + 0x7fffU + ((word >> 16U) & 1U);
        const bool nan = (word & 0x7fffffffU) > 0x7f800000U;
        return static_cast<std::uint16_t>((nan ? (word | 0x00400000U) : rounded) >> 16U);
    }
};

}  // namespace shardkit
