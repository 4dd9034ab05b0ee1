// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/reduce_op.hpp>  // first: g++ takes its scoped enumerator for a shadow of `sum`
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/number_text.hpp>

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

  private:
    constexpr Divisor(bool by_ranks, double n) noexcept : by_ranks_(by_ranks), n_(n) {}
    friend struct Divisors;

    bool by_ranks_;
    double n_;
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
