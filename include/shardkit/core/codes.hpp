// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <shardkit/core/element.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>

namespace shardkit {

/// An 8-bit floating-point code: a sign, 4 bits of exponent and 3 of mantissa, without infinities (OCP's E4M3, as in
/// torch.float8_e4m3fn and CUDA's __nv_fp8_e4m3). As the Gather of a Precision, a number is code * scale, with one
/// fp32 scale for each parameter: the least power of two with which no code is beyond 448. It has no conversion to a
/// number of its own, as a code means nothing without its scale; see CodedView and detail::CodeFormat.
/// Bounds:  |value - number| <= |number| / 16, or 2^-10 scale where that is more: a number below 2^-6 scale
enum class e4m3 : std::uint8_t {};

/// An 8-bit integer code, with one fp32 scale for each block of 64 elements of its parameter.
/// Bounds:  |value - number| <= scale / 2, up to fp32 rounding; scale: the block's largest magnitude / 127
enum class block_int8 : std::int8_t {};

template <>
struct element_traits<e4m3> : detail::ElementTraits<ElementType::uint8, float> {};
template <>
struct element_traits<block_int8> : detail::ElementTraits<ElementType::uint8, float> {};

namespace detail {

/// How numbers become codes of type T; nothing for other types.
///     block              number of elements that share a scale; 0: those of a parameter
///     scale(largest)     the scale of numbers whose magnitudes are at most `largest`
///     encode, decode     of one number
template <class T>
struct CodeFormat {};

template <>
struct CodeFormat<e4m3> {
    static constexpr std::size_t block = 0;

    /// NaN after an infinite or NaN number, so that all values are NaN, and the error is not hidden.
    static constexpr float scale(float largest) noexcept {
        if (!is_finite(largest)) { return std::numeric_limits<float>::quiet_NaN(); }
        // largest = m 2^e with 1 <= m < 2, and 448 = 1.75 * 2^8.
        const auto bits = std::bit_cast<std::uint32_t>(largest);
        const std::uint32_t exponent = (bits >> 23U) + ((bits & 0x7f'ffffU) > 0x60'0000U ? 1U : 0U);
        return std::bit_cast<float>((exponent > 9U ? exponent - 8U : 1U) << 23U);
    }
    /// Rounds to nearest, ties to even.
    static constexpr e4m3 encode(float number, float scale) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(number * inverse(scale));
        const std::uint32_t magnitude = word & 0x7fff'ffffU;
        const std::uint32_t sign = word >> 24U & 0x80U;
        // From 2^-6 on, the exponent is 120 less and 20 bits go. Below, codes count 2^-9, which is the spacing of
        // fp32 at 2^14.
        const std::uint32_t normal = (magnitude + 0x7'ffffU + (magnitude >> 20U & 1U)) >> 20U;
        const std::uint32_t low =
            std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (1U << 23U)) + 0x1p15F) -
            std::bit_cast<std::uint32_t>(0x1p15F);
        const std::uint32_t code = magnitude < 0x3c80'0000U ? low : normal - (120U << 3U);
        return e4m3{static_cast<std::uint8_t>(sign | (magnitude > 0x43e0'0000U ? 0x7fU : code))};
    }
    static constexpr float decode(e4m3 code, float scale) noexcept {
        const auto bits = static_cast<std::uint32_t>(code);
        const std::uint32_t magnitude = bits & 0x7fU;
        const float number = magnitude == 0x7fU  ? std::numeric_limits<float>::quiet_NaN()
                             : magnitude >= 0x8U ? std::bit_cast<float>((magnitude << 20U) + (120U << 23U))
                                                 : static_cast<float>(magnitude) * 0x1p-9F;
        return ((bits & 0x80U) != 0 ? -number : number) * scale;
    }

  private:
    /// 1 / scale, exactly: scales are powers of two from 2^-126 to 2^120.
    static constexpr float inverse(float scale) noexcept {
        return is_finite(scale) ? std::bit_cast<float>((254U << 23U) - std::bit_cast<std::uint32_t>(scale)) : scale;
    }
};

/// value = code * scale, scale = largest magnitude of the block / 127, in fp32, whatever the element type. The last
/// block may be shorter than the others. A block of zeros has scale 0.
/// Source:  symmetric absmax quantisation, as in ZeRO++, arXiv 2306.10209, section 3.1
template <>
struct CodeFormat<block_int8> {
    static constexpr std::size_t block = 64;
    static constexpr float largest_code = 127;

    /// Returns the number of blocks, and thereby of scales, for `count` elements.
    static constexpr std::size_t blocks(std::size_t count) noexcept { return count / block + (count % block != 0); }
    /// NaN after an infinite or NaN number, or one beyond fp32's range: all values of the block are NaN.
    static constexpr float scale(float largest) noexcept {
        return is_finite(largest) ? largest / largest_code : std::numeric_limits<float>::quiet_NaN();
    }
    /// Returns number / scale, rounded to nearest, ties to even; 0 if the scale is 0 or NaN.
    static constexpr block_int8 encode(float number, float scale) noexcept {
        const bool codes = is_finite(scale) && scale > 0;
        const float ratio = number / (codes ? scale : 1.0F);
        const float least = ratio > -largest_code ? ratio : -largest_code;  // of a NaN too
        const float held = least < largest_code ? least : largest_code;
        // Twice the number, as bits: no part of an expression that -ffast-math may reorder. What is added to it has
        // bits that count twos.
        const auto twice = std::bit_cast<float>(std::bit_cast<std::uint32_t>(held) + (1U << 23U));
        const std::int32_t code =
            std::bit_cast<std::int32_t>(twice + 0x1.8p24F) - std::bit_cast<std::int32_t>(0x1.8p24F);
        return block_int8{static_cast<std::int8_t>(codes ? code : 0)};
    }
    static constexpr float decode(block_int8 code, float scale) noexcept {
        return static_cast<float>(static_cast<std::int8_t>(code)) * scale;
    }
};

/// Whether elements of type T are codes, which mean nothing without their scales.
template <class T>
inline constexpr bool is_coded = requires {
    CodeFormat<T>::block;
};

/// Whether they are codes that share scales in blocks.
template <class T>
inline constexpr bool codes_in_blocks = requires {
    requires CodeFormat<T>::block >
    0;
};
/// Returns the number of element i's scale among those of its parameter; 0 where elements are no codes.
template <class T>
constexpr std::size_t scale_number(std::size_t i) noexcept {
    if constexpr (codes_in_blocks<T>) { return i / CodeFormat<T>::block; }
    return 0;
}

/// Elements whose codes one index of a launch begins. A parameter begins at a multiple of them, and so does the first
/// element that a rank updates.
inline constexpr std::size_t coded_together = CodeFormat<block_int8>::block;

/// Returns the largest magnitude of some numbers; NaN after any NaN. In words, for which the host's compiler uses
/// short vectors, and not for those of larger_magnitude.
template <class T>
constexpr float largest_magnitude(const T* numbers, std::size_t count) noexcept {
    std::uint32_t largest = 0;
    for (std::size_t k = 0; k < count; ++k) {
        largest = larger_word(largest, magnitude_word(static_cast<float>(numbers[k])));
    }
    return as_number(largest);
}

/// Begins the codes of `coded_together` masters, as every update does with the masters that it leaves: makes the
/// scale and the codes of a block. Where a parameter has one scale, which is not known yet, it leaves their largest
/// magnitude in the first bytes of their codes.
template <class Code, class Master>
struct BeginCodes {
    const Master* masters;
    std::size_t count;
    Code* codes;
    float* scales;  ///< of blocks

    constexpr void operator()(std::uint64_t i) const {
        using Format = CodeFormat<Code>;
        const std::size_t begin = i * coded_together;
        const std::size_t end = begin + coded_together < count ? begin + coded_together : count;
        const float largest = largest_magnitude(masters + begin, end - begin);
        if constexpr (Format::block == 0) {
            std::memcpy(codes + begin, &largest, sizeof largest);
        } else {
            static_assert(Format::block == coded_together);
            const float scale = Format::scale(largest);
            scales[i] = scale;
            for (std::size_t k = begin; k < end; ++k) {
                codes[k] = Format::encode(static_cast<float>(masters[k]), scale);
            }
        }
    }
};

}  // namespace detail

}  // namespace shardkit
