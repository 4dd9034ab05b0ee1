// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/reduce_op.hpp>  // first: g++ takes its scoped enumerator for a shadow of `sum`
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit {

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
        if (!detail::is_finite(n) || n <= 0) {
            throw_invalid_argument(where, "divide_by: ", detail::number_text(n),
                                   " given, expected a finite number > 0");
        }
        return {false, n};
    }
};

/// Gradients are summed over the data ranks and not divided.
inline constexpr Divisor sum = Divisors::sum();
/// Gradients are averaged over the data ranks: dp x cp.
inline constexpr Divisor mean = Divisors::mean();
/// Gradients are summed over the data ranks and divided by `n`, the global token count for example.
/// @throws std::invalid_argument unless n is finite and above zero
inline Divisor divide_by(double n, SourceLocation where = SourceLocation::current()) {
    return Divisors::by(n, where);
}

}  // namespace shardkit
