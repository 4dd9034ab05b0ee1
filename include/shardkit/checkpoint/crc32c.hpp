// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <shardkit/core/source_location.hpp>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/// CRC-32C as a linear function, so that pieces of a tensor can be digested where they are, in any order.
/// Source: Castagnoli's polynomial, RFC 3720 appendix B.4. Over GF(2), the remainder of a text is the sum of the
/// remainders of its pieces, each multiplied by x^(8 * bytes behind the piece).
namespace shardkit::detail::crc32c {

/// The polynomial with reversed bits: bit 31 is the coefficient of x^0.
inline constexpr std::uint32_t polynomial = 0x82F63B78U;

/// Returns a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
        if ((a & bit) != 0) { product ^= b; }
        b = (b >> 1U) ^ ((b & 1U) != 0 ? polynomial : 0U);
    }
    return product;
}

/// The powers x^(8 * 2^k) for each bit k of a number of bytes.
inline constexpr std::array<std::uint32_t, 64> byte_powers = [] {
    std::array<std::uint32_t, 64> powers{};
    std::uint32_t power = 0x40000000U;  // x
    for (int square = 0; square < 3; ++square) { power = multiply(power, power); }
    for (std::uint32_t& each : powers) {
        each = power;
        power = multiply(power, power);
    }
    return powers;
}();

/// Returns remainder * x^(8 * bytes): the remainder of the text with that many zero bytes appended.
constexpr std::uint32_t behind(std::uint32_t remainder, std::uint64_t bytes) noexcept {
    for (std::size_t bit = 0; bytes != 0; ++bit, bytes >>= 1U) {
        if ((bytes & 1U) != 0) { remainder = multiply(byte_powers[bit], remainder); }
    }
    return remainder;
}

/// Returns the remainder after appending `bytes` to the text of `remainder`. Works on any machine.
inline std::uint32_t extend_by_tables(std::uint32_t remainder, const std::byte* bytes, std::size_t count) noexcept {
    // Table k has the contribution of a byte at distance k.
    static const auto tables = [] {
        std::array<std::array<std::uint32_t, 256>, 8> made{};
        for (std::size_t k = 0; k < made.size(); ++k) {
            for (std::uint32_t byte = 0; byte < 256; ++byte) { made[k][byte] = behind(byte, k + 1); }
        }
        return made;
    }();
    for (; count >= 8; count -= 8, bytes += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes, sizeof word);
        word ^= remainder;
        remainder = 0;
        for (std::size_t k = 0; k < 8; ++k) { remainder ^= tables[7 - k][(word >> (8 * k)) & 0xFFU]; }
    }
    for (; count > 0; --count, ++bytes) {
        remainder = (remainder >> 8U) ^ tables[0][(remainder ^ std::to_integer<std::uint32_t>(*bytes)) & 0xFFU];
    }
    return remainder;
}

#if defined(__x86_64__)
/// Return whether the processor has the instructions.
inline bool has_instruction() noexcept {
    static const bool has = __builtin_cpu_supports("sse4.2") != 0;
    return has;
}
inline bool folds() noexcept {
    static const bool has =
        has_instruction() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
    return has;
}

/// Returns the same with the processor's CRC instruction, in three chains that do not wait for each other.
/// @pre has_instruction()
__attribute__((target("sse4.2"))) inline std::uint32_t extend_by_instruction(std::uint32_t remainder,
                                                                             const std::byte* bytes,
                                                                             std::size_t count) noexcept {
    constexpr std::size_t chain = 8192;
    constexpr std::uint32_t over_one = behind(0x80000000U, chain);
    constexpr std::uint32_t over_two = behind(0x80000000U, 2 * chain);
    const auto word_at = [](const std::byte* at) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        return word;
    };
    while (count >= 3 * chain) {
        std::uint64_t a = remainder;
        std::uint64_t b = 0;
        std::uint64_t c = 0;
        for (std::size_t i = 0; i < chain; i += 8) {
            a = _mm_crc32_u64(a, word_at(bytes + i));
            b = _mm_crc32_u64(b, word_at(bytes + chain + i));
            c = _mm_crc32_u64(c, word_at(bytes + 2 * chain + i));
        }
        remainder = multiply(over_two, static_cast<std::uint32_t>(a)) ^
                    multiply(over_one, static_cast<std::uint32_t>(b)) ^ static_cast<std::uint32_t>(c);
        bytes += 3 * chain;
        count -= 3 * chain;
    }
    std::uint64_t rest = remainder;
    for (; count >= 8; count -= 8, bytes += 8) { rest = _mm_crc32_u64(rest, word_at(bytes)); }
    remainder = static_cast<std::uint32_t>(rest);
    for (; count > 0; --count, ++bytes) {
        remainder = _mm_crc32_u8(remainder, std::to_integer<unsigned char>(*bytes));
    }
    return remainder;
}

/// Returns the same by folding: 256 bytes, as a polynomial, are multiplied by a power of the variable and added to
/// the next 256 bytes, until the last 256 have the remainder of all. Carry-less products are of 64 bits by 32, four
/// at a time.
/// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
/// @pre folds()
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) inline std::uint32_t extend_by_folding(
    std::uint32_t remainder, const std::byte* bytes, std::size_t count) noexcept {
    using Lanes = long long __attribute__((vector_size(64)));  // the header of intrinsics compiles slowly
    constexpr std::size_t block = 4 * sizeof(Lanes);
    if (count < 2 * block) { return extend_by_instruction(remainder, bytes, count); }
    // A product of bit-reversed values is too large by a factor of x: hence 8 bits less one. The first half of a lane
    // is 64 bits ahead.
    constexpr auto times = [](std::size_t ahead) {
        const std::uint64_t factor = std::uint64_t{multiply(behind(0x80000000U, ahead - 1), 0x01000000U)} << 32U;
        return static_cast<long long>(factor);
    };
    constexpr Lanes factors{times(block + 8), times(block), times(block + 8), times(block),
                            times(block + 8), times(block), times(block + 8), times(block)};
    const auto load = [](const std::byte* from, Lanes& to) { std::memcpy(&to, from, sizeof to); };
    std::array<Lanes, 4> sums;
    for (std::size_t k = 0; k < sums.size(); ++k) { load(bytes + k * sizeof(Lanes), sums[k]); }
    sums[0][0] ^= remainder;
    for (bytes += block, count -= block; count >= block; bytes += block, count -= block) {
        for (std::size_t k = 0; k < sums.size(); ++k) {
            Lanes first;
            Lanes second;
            Lanes next;
            asm("vpclmulqdq $0x00, %1, %2, %0" : "=v"(first) : "v"(factors), "v"(sums[k]));
            asm("vpclmulqdq $0x11, %1, %2, %0" : "=v"(second) : "v"(factors), "v"(sums[k]));
            load(bytes + k * sizeof(Lanes), next);
            sums[k] = first ^ second ^ next;
        }
    }
    const std::array<Lanes, 4> last{sums[0], sums[1], sums[2], sums[3]};
    remainder = extend_by_instruction(0, std::as_bytes(std::span(last)).data(), block);
    return extend_by_instruction(remainder, bytes, count);
}
#endif

/// Returns the remainder after appending `bytes` to the text of `remainder`; start with 0.
inline std::uint32_t extend(std::uint32_t remainder, std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
    if (folds()) { return extend_by_folding(remainder, bytes.data(), bytes.size()); }
    if (has_instruction()) { return extend_by_instruction(remainder, bytes.data(), bytes.size()); }
#endif
    return extend_by_tables(remainder, bytes.data(), bytes.size());
}

/// Returns the standard CRC-32C of a text of that many bytes with this remainder. The standard inverts all bits at
/// the begin and at the end.
constexpr std::uint32_t finished(std::uint32_t remainder, std::uint64_t bytes) noexcept {
    return ~(remainder ^ behind(0xFFFFFFFFU, bytes));
}
/// Returns the standard CRC-32C of a whole text.
inline std::uint32_t of(std::span<const std::byte> bytes) noexcept { return ~extend(0xFFFFFFFFU, bytes); }

}  // namespace shardkit::detail::crc32c
