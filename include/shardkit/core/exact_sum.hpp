// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardkit {

/// A sum of doubles that does not depend on their order: it is kept exactly, in integers, and rounded once, by
/// value(). Width:   the smallest double is 2^-1074, the largest is below 2^1024, so each is a multiple of 2^-1074
/// below 2^2098
///          of these. 66 digits of 32 bits are 2112, and the last digit is a whole integer. So the sum of 2^31
///          doubles of any size is held before carry(), and of 2^31 more after each.
/// Infinities and NaN are counted beside the digits: the result is what IEEE 754 makes of them in any order.
/// Travel:  add_to() and the constructor write and read `numbers` doubles, which are integers below 2^32 (the last
///          digit: below 2^53). Therefore an ordinary all-reduce of doubles adds those of up to 2^21 ranks exactly,
///          in whatever order an engine adds.
/// It uses integers only, so compiler flags such as -Ofast do not change it.
/// Source:  Kulisch, Computer Arithmetic and Validity (2013); Neal, arXiv 1505.05571
class ExactSum {
  public:
    static constexpr std::size_t digits = 66;
    /// The doubles that one sum is while it travels: the digits, and counts of +infinity, -infinity and NaN.
    static constexpr std::size_t numbers = digits + 3;

    constexpr ExactSum() noexcept : parts_{} {}
    /// Reads what add_to() wrote, or the sum of several of these.
    constexpr explicit ExactSum(const double* travelled) noexcept {
        for (std::size_t i = 0; i < numbers; ++i) { parts_[i] = static_cast<std::int64_t>(travelled[i]); }
    }

    constexpr void add(double value) noexcept {
        split(value, [this](std::size_t i, std::int64_t amount) { add_part(i, amount); });
    }
    /// Adds (high * 2^64 + low) * 2^(position - 1074).
    /// @pre the number is below 2^1038
    constexpr void add_integer(std::uint64_t position, std::uint64_t low, std::uint64_t high = 0) noexcept {
        split(position, low, high, 1, [this](std::size_t i, std::int64_t amount) { add_part(i, amount); });
    }
    /// Adds to one of the numbers.
    constexpr void add_part(std::size_t i, std::int64_t amount) noexcept { parts_[i] += amount; }

    /// Calls add(i, amount) with what `value` adds to the i-th number: for sums that many threads make.
    template <class Add>
    static constexpr void split(double value, const Add& add) {
        const auto bits = std::bit_cast<std::uint64_t>(value);
        const std::uint64_t exponent = bits >> 52U & 0x7ffU;
        const std::uint64_t fraction = bits & fraction_bits;
        const bool negative = bits >> 63U != 0;
        if (exponent == 0x7ff) {
            add(fraction != 0 ? nan : negative ? negative_infinity : positive_infinity, 1);
            return;
        }
        const std::uint64_t normal = exponent != 0 ? 1 : 0;
        split(exponent - normal, fraction | normal << 52U, 0, negative ? -1 : 1, add);
    }
    /// The same of sign * (high * 2^64 + low) * 2^(position - 1074).
    template <class Add>
    static constexpr void split(std::uint64_t position, std::uint64_t low, std::uint64_t high, std::int64_t sign,
                                const Add& add) {
        const std::uint64_t shift = position % 32;
        std::uint64_t carried = 0;
        for (std::size_t i = position / 32; (low | high | carried) != 0; ++i) {
            const std::uint64_t moved = ((low & low_word) << shift) + carried;
            if ((moved & low_word) != 0) { add(i, sign * static_cast<std::int64_t>(moved & low_word)); }
            carried = moved >> 32U;
            low = low >> 32U | high << 32U;
            high >>= 32U;
        }
    }

    constexpr void add(const ExactSum& other) noexcept {
        for (std::size_t i = 0; i < numbers; ++i) { parts_[i] += other.parts_[i]; }
        carry();
    }
    /// Adds this sum to one that travels.
    constexpr void add_to(double* travelling) const noexcept {
        add_to(travelling, [this](std::size_t i) { return parts_[i]; });
    }
    /// The same of a sum whose i-th number is part(i).
    template <class Part>
    static constexpr void add_to(double* travelling, const Part& part) {
        std::int64_t carried = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
        for (std::size_t i = 0; i < numbers; ++i) {
            const std::int64_t own = part(i);
            if ((own | carried) == 0) { continue; }  // most digits
            std::int64_t number = static_cast<std::int64_t>(travelling[i]) + own + carried;
            carried = 0;
            if (i + 1 < digits) {
                carried = number >> 32U;
                number &= low_word;
            }
            travelling[i] = static_cast<double>(number);
        }
    }

    /// Brings all digits but the last into [0, 2^32).
    constexpr void carry() noexcept {
        std::int64_t carried = 0;  // in a register: through memory each digit would wait for the one before
        for (std::size_t i = 0; i + 1 < digits; ++i) {
            if ((parts_[i] | carried) == 0) { continue; }  // most digits
            const std::int64_t whole = parts_[i] + carried;
            carried = whole >> 32U;
            parts_[i] = whole & low_word;
        }
        parts_[digits - 1] += carried;
    }

    /// Returns the sum rounded to nearest, ties to even; infinite beyond the largest double.
    constexpr double value() const& noexcept { return ExactSum(*this).value(); }
    constexpr double value() && noexcept {
        if (parts_[nan] > 0 || (parts_[positive_infinity] > 0 && parts_[negative_infinity] > 0)) {
            return std::numeric_limits<double>::quiet_NaN();
        }
        if (parts_[positive_infinity] > 0) { return infinity; }
        if (parts_[negative_infinity] > 0) { return -infinity; }
        carry();
        const bool negative = parts_[digits - 1] < 0;
        if (negative) {
            for (std::size_t i = 0; i < digits; ++i) { parts_[i] = -parts_[i]; }
            carry();
        }
        return std::bit_cast<double>(rounded_bits() | (negative ? std::uint64_t{1} << 63U : 0));
    }

  private:
    static constexpr std::size_t positive_infinity = digits;
    static constexpr std::size_t negative_infinity = digits + 1;
    static constexpr std::size_t nan = digits + 2;
    static constexpr double infinity = std::numeric_limits<double>::infinity();
    static constexpr std::uint64_t fraction_bits = (std::uint64_t{1} << 52U) - 1;
    static constexpr std::uint64_t infinity_bits = std::uint64_t{0x7ff} << 52U;
    static constexpr std::uint32_t low_word = 0xffff'ffff;

    /// Returns the bits of the double nearest to a sum that is not negative and whose digits were carried.
    constexpr std::uint64_t rounded_bits() const noexcept {
        std::size_t last = digits - 1;
        while (last > 0 && parts_[last] == 0) { --last; }
        if (parts_[last] >> 32U != 0) { return infinity_bits; }  // the last digit: 2^2112 and more
        const auto top = static_cast<std::uint64_t>(parts_[last]);
        const auto width = static_cast<std::uint64_t>(std::bit_width(top));
        const std::uint64_t bits = 32 * last + width;
        if (bits <= 53) {  // a whole double, subnormal below 2^52
            const auto low = static_cast<std::uint64_t>(parts_[0] + (parts_[1] << 32U));
            return low;
        }
        const std::uint64_t lowest = bits - 53;
        // The first 64 bits, of which the double has 53; whether anything is below decides between two.
        const auto third = last > 1 ? static_cast<std::uint64_t>(parts_[last - 2]) : 0;
        const std::uint64_t first =
            (top << 32U | static_cast<std::uint64_t>(parts_[last - 1])) << (32 - width) | third >> width;
        const auto below = [&] {
            if ((third << (32 - width) & low_word) != 0) { return true; }
            for (std::size_t i = 0; i + 2 < last; ++i) {
                if (parts_[i] != 0) { return true; }
            }
            return false;
        };
        std::uint64_t fraction = first >> 11U;
        const std::uint64_t rest = first << 53U;
        constexpr std::uint64_t half = std::uint64_t{1} << 63U;
        if (rest > half || (rest == half && ((fraction & 1U) != 0 || below()))) { ++fraction; }
        // Added, so that a fraction that was rounded up to a power of two raises the exponent.
        const std::uint64_t rounded = (lowest << 52U) + fraction;
        return rounded < infinity_bits ? rounded : infinity_bits;
    }

    std::int64_t parts_[numbers];
};

}  // namespace shardkit
