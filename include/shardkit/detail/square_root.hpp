// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>

namespace shardkit::detail {

/// The correctly rounded square root. Kernels call it unqualified, so that a short vector's own overload is
/// found by its namespace and one functor serves scalars and vectors.
template <std::floating_point A>
constexpr A square_root(A value) {
    return std::sqrt(value);
}

}  // namespace shardkit::detail
