// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <limits>

namespace shardkit::rules {

/// Multiplies values of A by a number that may be too small or too large for A itself, such as one over a divisor and
/// a loss scale. It holds two numbers of A whose product is the factor: (first * value) * second is subnormal or
/// infinite only if value times the number is. For a number in A's normal range `second` is 1 and changes no bits.
/// Range: for float 2^-252 to 2^253, for double that of double. In kernels `*` takes a value of A, or a short vector
/// of A, like the functors of optim/.
template <std::floating_point A>
struct Factor {
    A first = 1;
    A second = 1;

    constexpr Factor() noexcept = default;
    constexpr explicit Factor(double number) noexcept : first(static_cast<A>(number)) {
        if constexpr (sizeof(A) < sizeof(double)) {
            constexpr double half_way = 0x1p126;
            const double magnitude = number < 0 ? -number : number;
            if (magnitude < static_cast<double>(std::numeric_limits<A>::min())) {
                first = static_cast<A>(number * half_way);
                second = static_cast<A>(1 / half_way);
            } else if (magnitude > static_cast<double>(std::numeric_limits<A>::max())) {
                first = static_cast<A>(number / half_way);
                second = static_cast<A>(half_way);
            }
        }
    }

    template <class V>
    [[gnu::always_inline]] friend constexpr V operator*(const Factor& factor, V value) {
        return (factor.first * value) * factor.second;
    }
    friend constexpr bool operator==(const Factor&, const Factor&) noexcept = default;
};

}  // namespace shardkit::rules
