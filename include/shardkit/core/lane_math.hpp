// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>

namespace shardkit {

// Functors of kernels run on values and on short vectors of values. They call these functions unqualified, so that
// argument-dependent lookup finds a short vector's own overload, and one functor serves both:
//     using shardkit::select;
//     parameter = select(gradient > A{0}, parameter, V(A{0}));
//     parameter = select(gradient > A{0}, parameter, V(A{0}));

/// Returns the correctly rounded square root.
template <std::floating_point A>
constexpr A square_root(A value) {
    return std::sqrt(value);
}

/// Returns `yes` if `which` is true, otherwise `no`; for short vectors lane by lane.
template <std::floating_point A>
constexpr A select(bool which, A yes, A no) {
    return which ? yes : no;
}

}  // namespace shardkit
