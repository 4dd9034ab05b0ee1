// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
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

/// What the sum over the data ranks is divided by, once, in the reduction type or folded into the optimizer's
/// scale. A tensor-parallel reduction is always a sum.
struct Sum {
    static constexpr double divisor(std::size_t /*data_ranks*/) noexcept { return 1; }
};
/// Divides by the data ranks: dp x cp.
struct Mean {
    static constexpr double divisor(std::size_t data_ranks) noexcept { return static_cast<double>(data_ranks); }
};
/// Divides by a number that the user knows, for example the global token count.
class DivideBy {
  public:
    explicit DivideBy(double n, SourceLocation where = SourceLocation::current()) : n_(n) {
        detail::require_divisor("divide_by", n, where);
    }
    double divisor(std::size_t /*data_ranks*/) const noexcept { return n_; }

  private:
    double n_;
};

/// Gradients are summed over the data ranks and not divided.
inline constexpr Sum sum{};
/// Gradients are averaged over the data ranks: dp x cp.
inline constexpr Mean mean{};
/// Gradients are summed over the data ranks and divided by `n`.
/// @throws std::invalid_argument unless n is from 1e-30 to 1e30
inline DivideBy divide_by(double n, SourceLocation where = SourceLocation::current()) { return DivideBy(n, where); }

/// Something that says what the sum over `data_ranks` ranks is divided by: a number from 1e-30 to 1e30.
template <class D>
concept Divisor = requires(const D divisor, std::size_t data_ranks) {
    { divisor.divisor(data_ranks) } -> std::same_as<double>;
};

}  // namespace shardkit
