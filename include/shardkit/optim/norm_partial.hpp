// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <shardkit/core/factor.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {

/// One shard's contribution to the global norm and to the finite check. Both are doubles, so that the two
/// travel in one all-reduce and add up whatever the element type.
/// Invariant: `nonfinite` > 0 exactly when some element was infinite or NaN; how far above zero says nothing
/// more. An overflow of a square makes `sum_of_squares` infinite and leaves `nonfinite` alone.
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

}  // namespace shardkit::detail
