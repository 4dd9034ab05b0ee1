// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardkit::test {

/// The distance from |value| to the next larger number of its type.
template <class A>
double ulp(A value) {
    const A magnitude = std::max(std::fabs(value), std::numeric_limits<A>::min());
    return static_cast<double>(std::nextafter(magnitude, std::numeric_limits<A>::infinity())) -
           static_cast<double>(magnitude);
}

/// How far `given` is from `expected`, as a multiple of `allowed`.
inline double excess(double given, double expected, double allowed) {
    const double difference = std::fabs(given - expected);
    return difference == 0 ? 0 : difference / allowed;
}

/// A moment may be off by this share of the magnitudes of the terms that it is the sum of: 2^-22 in fp32, two
/// units in the last place, and the same two in fp64.
template <class A>
inline constexpr double moment_share = 2 * static_cast<double>(std::numeric_limits<A>::epsilon());

/// The share of the learning rate that a parameter may be off by, besides two units in its last place.
template <class A>
inline constexpr double step_share = sizeof(A) == 4 ? 1e-6 : 1e-6 / (1U << 29U);

}  // namespace shardkit::test
