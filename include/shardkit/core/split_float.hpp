// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace shardkit::detail {

/// An fp32 number as a bf16 number near it and 16 bits of rest, which together are the number itself. The rest is the
/// lower half of the number's word, read as a signed difference.
/// The bf16 number is the nearest one. Between two that are equally near it is the one of larger magnitude, and not
/// the even one: an even bf16 number is the nearest of 65,537 fp32 numbers, ties included, which 16 bits cannot tell
/// apart.
struct SplitFloat {
    /// Returns the bits of the bf16 number; a NaN stays one.
    static constexpr std::uint16_t upper(float value) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const bool nan = (word & 0x7fff'ffffU) > 0x7f80'0000U;
        return static_cast<std::uint16_t>((nan ? word | 0x0040'0000U : word + 0x8000U) >> 16U);
    }
    static constexpr std::uint16_t lower(float value) noexcept {
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value));
    }
    /// Returns the number that has these halves.
    static constexpr float joined(std::uint16_t upper, std::uint16_t lower) noexcept {
        const std::uint32_t word = (std::uint32_t{upper} << 16U) - ((std::uint32_t{lower} & 0x8000U) << 1U);
        return std::bit_cast<float>(word | lower);
    }
};

/// Joins halves, and splits numbers, by index: for Kernels::for_each_index. T: an element type with the bits of bf16.
template <class T>
struct JoinWork {
    const T* upper;
    const std::uint16_t* lower;
    float* to;

    constexpr void operator()(std::uint64_t i) const {
        to[i] = SplitFloat::joined(std::bit_cast<std::uint16_t>(upper[i]), lower[i]);
    }
};
template <class T>
struct SplitWork {
    const float* from;
    T* upper;
    std::uint16_t* lower;

    constexpr void operator()(std::uint64_t i) const {
        upper[i] = std::bit_cast<T>(SplitFloat::upper(from[i]));
        lower[i] = SplitFloat::lower(from[i]);
    }
};

}  // namespace shardkit::detail
