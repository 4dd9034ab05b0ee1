// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace shardkit::rules {

// Functors of kernels run on values and on short vectors of values. They call these functions unqualified, so that
// argument-dependent lookup finds a short vector's own overload, and one functor serves both:
//     using shardkit::rules::select;
//     parameter = select(gradient > A{0}, parameter, V(A{0}));

/// Returns the correctly rounded square root.
template <std::floating_point A>
constexpr A square_root(A value) {
    return std::sqrt(value);
}

/// Returns the magnitude.
template <std::floating_point A>
constexpr A absolute(A value) {
    return value < 0 ? -value : value;
}

/// Returns `value` without its fraction.
/// @pre its magnitude is below 2^31
template <std::floating_point A>
constexpr A truncated(A value) {
    return static_cast<A>(static_cast<std::int32_t>(value));
}

/// Returns `yes` if `which` is true, otherwise `no`; for short vectors lane by lane.
template <std::floating_point A>
constexpr A select(bool which, A yes, A no) {
    return which ? yes : no;
}

}  // namespace shardkit::rules
