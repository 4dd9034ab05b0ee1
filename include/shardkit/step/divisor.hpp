// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/reduce_op.hpp>  // first: g++ takes its scoped enumerator for a shadow of `sum`
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit {

namespace detail {
/// Refuses what a step's gradients cannot be divided by: with a loss scale on top, one over it is still a factor of
/// fp32 gradients. @throws std::invalid_argument that says `what` was given, and what was expected
inline void require_divisor(const char* what, double given, SourceLocation where) {
    constexpr double smallest = 1e-30;
    constexpr double largest = 1e30;
    if (is_finite(given) && given >= smallest && given <= largest) { return; }
    throw_invalid_argument(where, what, ": ", number_text(given), " given, expected a number from ",
                           number_text(smallest), " to ", number_text(largest));
}
}  // namespace detail

/// Says what the sum of gradients over the data ranks is divided by: `sum`, `mean` or `divide_by(n)`. It is applied
/// once, in the reduction type or folded into the optimizer's scale. A tensor-parallel reduction is always a sum.
class Divisor {
  public:
    /// The number for a sum over so many data ranks, dp x cp.
    constexpr double of(std::size_t data_ranks) const noexcept {
        return by_ranks_ ? static_cast<double>(data_ranks) : n_;
    }

  private:
    constexpr Divisor(bool by_ranks, double n) noexcept : by_ranks_(by_ranks), n_(n) {}
    friend struct Divisors;

    bool by_ranks_;
    double n_;
};

/// The ways to make a Divisor.
struct Divisors {
    static constexpr Divisor sum() noexcept { return {false, 1}; }
    static constexpr Divisor mean() noexcept { return {true, 1}; }
    static Divisor by(double n, SourceLocation where) {
        detail::require_divisor("divide_by", n, where);
        return {false, n};
    }
};

/// Gradients are summed over the data ranks and not divided.
inline constexpr Divisor sum = Divisors::sum();
/// Gradients are averaged over the data ranks: dp x cp.
inline constexpr Divisor mean = Divisors::mean();
/// Gradients are summed over the data ranks and divided by `n`, the global token count for example.
/// @throws std::invalid_argument unless n is from 1e-30 to 1e30
inline Divisor divide_by(double n, SourceLocation where = SourceLocation::current()) {
    return Divisors::by(n, where);
}

}  // namespace shardkit
