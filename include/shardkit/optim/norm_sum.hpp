// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/exact_sum.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {

/// A global norm before its root, and the finite check.
/// Invariant: `nonfinite` > 0 exactly when some element was infinite or NaN, or is once it is scaled, as an update
/// would take it; how far above zero says nothing more. The overflow of a square alone leaves it as it is.
struct NormTotal {
    double sum_of_squares = 0;
    double nonfinite = 0;

    friend constexpr bool operator==(const NormTotal&, const NormTotal&) noexcept = default;
};

/// The verdict of a total over all ranks.
constexpr FoundInf found_inf(const NormTotal& total) noexcept {
    return total.nonfinite > 0 ? FoundInf::yes : FoundInf::no;
}

/// One element's term of the squared norm, in arithmetic type A; V as for AdamWUpdate. The gradient is scaled
/// before it is squared, so that a loss scale does not make the square overflow.
template <std::floating_point A>
struct SquaredTerm {
    rules::Factor<A> scale;

    template <class V>
    [[gnu::always_inline]] constexpr V operator()(V gradient) const {
        const V scaled = scale * gradient;
        return scaled * scaled;
    }
};

/// Whether a sum of squares in arithmetic type A holds what it is of. In fp32 squares of elements below 1e-23 are
/// zero and of those above 1.8e19 infinite, long before the elements are: such a sum is made again in double. Above
/// the bound what few thousand squares lose to subnormal numbers is less than their rounding.
template <std::floating_point A>
constexpr bool holds_squares(A squares) noexcept {
    if constexpr (sizeof(A) < sizeof(double)) {
        return is_finite(squares) && squares >= A{0x1p-80F};
    } else {
        return is_finite(squares);
    }
}

/// Adds sums of squares that are near each other faster than ExactSum: of floats in 64 bits, of doubles in 128.
template <std::floating_point A>
class ExactWindow {
    static constexpr bool single = sizeof(A) < sizeof(double);

  public:
    /// How many sums it holds: each is below 2^56 of its units, of doubles below 2^117.
    static constexpr std::size_t most = single ? 256 : 2048;

    /// Takes sums from 1 / root(2^range) to root(2^range) / 2 times the power of two in `sum`, as near to that as A
    /// holds squares.
    constexpr explicit ExactWindow(A sum) noexcept {
        const Bits exponent = std::bit_cast<Bits>(sum) >> fraction_width;
        lowest_ = exponent < least + range / 2     ? least
                  : exponent > largest - range / 2 ? largest - range + 1
                                                   : exponent - range / 2;
    }
    /// Returns whether the sum was in the range and was added.
    [[gnu::always_inline]] constexpr bool add(A sum) noexcept {
        const auto bits = std::bit_cast<Bits>(sum);
        const Bits shift = (bits >> fraction_width) - lowest_;
        if (shift >= range) { return false; }
        constexpr Bits hidden = Bits{1} << fraction_width;
        const std::uint64_t fraction = (bits & (hidden - 1)) | hidden;
        const std::uint64_t moved = fraction << shift;
        low_ += moved;
        if constexpr (!single) { high_ += (fraction >> 1U >> (63 - shift)) + (low_ < moved ? 1 : 0); }
        return true;
    }
    constexpr void add_to(ExactSum& sum) const noexcept { sum.add_integer(lowest_ + unit, low_, high_); }
    /// Calls add(i, amount) as ExactSum::split does.
    template <class Add>
    constexpr void split(const Add& add) const {
        ExactSum::split(lowest_ + unit, low_, high_, 1, add);
    }

  private:
    using Bits = std::conditional_t<single, std::uint32_t, std::uint64_t>;
    static constexpr Bits fraction_width = single ? 23 : 52;
    static constexpr Bits range = single ? 32 : 64;
    /// The exponents of held sums of squares.
    static constexpr Bits least = single ? 127 - 80 : 1;
    static constexpr Bits largest = single ? 254 : 2046;
    /// The position in an ExactSum of the last bit of a fraction with exponent 0: 1074 - 127 - 23 for floats.
    static constexpr std::uint64_t unit = single ? 924 : std::uint64_t{0} - 1;

    Bits lowest_;
    std::uint64_t low_ = 0;
    std::uint64_t high_ = 0;
};

/// What a rank adds to a global norm: the exact sum of its packs' sums, and of its elements that are not finite. It
/// travels as an ExactSum does.
struct NormSum {
    ExactSum squares;
    std::int64_t nonfinite = 0;

    static constexpr std::size_t numbers = ExactSum::numbers + 1;

    constexpr NormSum() noexcept = default;
    constexpr explicit NormSum(const double* travelled) noexcept
        : squares(travelled), nonfinite(static_cast<std::int64_t>(travelled[ExactSum::numbers])) {}
    /// Takes from a sum that travels all but its elements that are not finite.
    static constexpr void keep_nonfinite(double* travelling) noexcept {
        for (std::size_t i = 0; i < ExactSum::digits; ++i) { travelling[i] = 0; }
    }
    constexpr void add_to(double* travelling) const noexcept {
        squares.add_to(travelling);
        travelling[ExactSum::numbers] += static_cast<double>(nonfinite);
    }
    /// The same of a sum whose i-th number is part(i).
    template <class Part>
    static constexpr void add_to(double* travelling, const Part& part) {
        ExactSum::add_to(travelling, part);
        travelling[ExactSum::numbers] += static_cast<double>(part(ExactSum::numbers));
    }
    /// Adds to one of the numbers.
    constexpr void add_part(std::size_t i, std::int64_t amount) noexcept {
        if (i < ExactSum::numbers) {
            squares.add_part(i, amount);
        } else {
            nonfinite += amount;
        }
    }
    constexpr NormTotal total() const& noexcept { return NormSum(*this).total(); }
    constexpr NormTotal total() && noexcept {
        return {static_cast<ExactSum&&>(squares).value(), static_cast<double>(nonfinite)};
    }

    /// Adds sums of packs; calls again(i) for each that A does not hold, which must add it.
    template <std::floating_point A, class Again>
    constexpr void add_packs(std::span<const A> sums, const Again& again) noexcept {
        for (std::size_t at = 0; at < sums.size();) {
            ExactWindow<A> window(sums[at]);
            const std::size_t end = sums.size() - at < window.most ? sums.size() : at + window.most;
            for (; at < end; ++at) {
                if (window.add(sums[at])) { continue; }
                if (holds_squares(sums[at])) {
                    squares.add(static_cast<double>(sums[at]));
                } else {
                    again(at);
                }
            }
            window.add_to(squares);
        }
    }
};

}  // namespace shardkit::detail
