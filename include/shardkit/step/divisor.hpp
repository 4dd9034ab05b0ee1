// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/reduce_op.hpp>  // first: g++ takes its scoped enumerator for a shadow of `sum`
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

namespace detail {
/// Checks a divisor of gradients. Its reciprocal must be a factor of fp32 gradients, even combined with a loss scale.
/// @throws std::invalid_argument that names `what`, the value given and the values expected
inline void require_divisor(const char* what, double given, SourceLocation where) {
    constexpr double smallest = 1e-30;
    constexpr double largest = 1e30;
    if (is_finite(given) && given >= smallest && given <= largest) { return; }
    throw_invalid_argument(where, what, ": ", number_text(given), " given, expected a number from ",
                           number_text(smallest), " to ", number_text(largest));
}
}  // namespace detail

/// What the sum of gradients over the data ranks is divided by: `sum`, `mean` or `divide_by(n)`. It is applied once,
/// in the reduction type or folded into the optimizer's scale. A tensor-parallel reduction is always a sum.
class Divisor {
  public:
    /// Returns the divisor for a sum over `averaged` data ranks (dp x cp), or slices.
    constexpr double of(std::size_t averaged) const noexcept {
        return by_ranks_ ? static_cast<double>(averaged) : n_;
    }

    /// Returns this divisor with a second one beside it, of another loss in the same backward pass, as a router's.
    /// All gradients are divided by the first; so the backward pass multiplies the other loss by `factor()`:
    ///     const sk::Divisor divisor = sk::divide_by(tokens).beside(sequences);
    ///     backward(loss, 1.0), backward(router_loss, divisor.factor());
    ///     optimizer.step(std::move(accumulation), {.divisor = divisor});
    /// Ranks compare both.
    /// @throws std::invalid_argument of `mean`, and unless n is from 1e-30 to 1e30
    Divisor beside(double n, SourceLocation where = SourceLocation::current()) const {
        detail::require_divisor("Divisor::beside", n, where);
        if (by_ranks_) {
            throw_invalid_argument(where,
                                   "Divisor::beside: of mean, expected divide_by(n): what both losses are "
                                   "divided by");
        }
        Divisor both = *this;
        both.other_ = n;
        return both;
    }
    /// Returns what a loss with the second divisor is multiplied by, so that the first one divides it too: the first
    /// over the second. 1 without a second one.
    constexpr double factor() const noexcept { return other_ == 0 ? 1 : n_ / other_; }
    /// Returns the second divisor; 0 without one.
    constexpr double other() const noexcept { return other_; }

  private:
    constexpr Divisor(bool by_ranks, double n) noexcept : by_ranks_(by_ranks), n_(n) {}
    friend struct Divisors;

    bool by_ranks_;
    double n_;
    double other_ = 0;
};

/// The functions that make a Divisor.
struct Divisors {
    static constexpr Divisor sum() noexcept { return {false, 1}; }
    static constexpr Divisor mean() noexcept { return {true, 1}; }
    static Divisor by(double n, SourceLocation where) {
        detail::require_divisor("divide_by", n, where);
        return {false, n};
    }
};

/// Sums gradients over the data ranks, without a division.
inline constexpr Divisor sum = Divisors::sum();
/// Averages gradients over the data ranks (dp x cp), or over the slices where TreeSums has a number of them.
inline constexpr Divisor mean = Divisors::mean();
/// Divides the sum of gradients over the data ranks by `n`, for example the global number of tokens.
/// @throws std::invalid_argument unless n is from 1e-30 to 1e30
inline Divisor divide_by(double n, SourceLocation where = SourceLocation::current()) {
    return Divisors::by(n, where);
}

}  // namespace shardkit
