// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {

/// One shard's contribution to the global norm and to the finite check. Both are doubles, so that the two
/// travel in one all-reduce and add up whatever the element type.
/// Invariant: `nonfinite` > 0 exactly when some element was infinite or NaN, or is once it is scaled, as an update
/// would take it; how far above zero says nothing more. The overflow of a square alone leaves it as it is.
struct NormPartial {
    double sum_of_squares = 0;
    double nonfinite = 0;

    constexpr NormPartial& operator+=(const NormPartial& other) noexcept {
        sum_of_squares += other.sum_of_squares;
        nonfinite += other.nonfinite;
        return *this;
    }
    friend constexpr bool operator==(const NormPartial&, const NormPartial&) noexcept = default;
};

/// The verdict of a partial that was summed over all ranks.
constexpr FoundInf found_inf(const NormPartial& total) noexcept {
    return total.nonfinite > 0 ? FoundInf::yes : FoundInf::no;
}

/// One element's term of the squared norm, in arithmetic type A; V as for AdamWUpdate. The gradient is scaled
/// before it is squared, so that a loss scale does not make the square overflow.
template <std::floating_point A>
struct SquaredTerm {
    Factor<A> scale;

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

}  // namespace shardkit::detail
