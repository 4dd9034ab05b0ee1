// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

/// The larger of two figures; a NaN counts as larger than any number, and so stays. (std::max passes over it.)
constexpr double larger(double a, double b) { return a != a || a > b ? a : b; }

static_assert(larger(1, 2) == 2 && larger(2, 1) == 2);
static_assert(!(larger(std::numeric_limits<double>::quiet_NaN(), 1) <= 1), "a NaN that comes first stays");
static_assert(!(larger(1, std::numeric_limits<double>::quiet_NaN()) <= 1), "so does one that comes last");

/// The largest |a[i] - b[i]| of two containers; a NaN stays, and sizes that differ are infinitely far apart.
template <class Given, class Expected>
double largest_difference(const Given& given, const Expected& expected) {
    if (given.size() != expected.size()) { return HUGE_VAL; }
    double largest = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        largest = larger(largest, std::abs(static_cast<double>(given[i]) - static_cast<double>(expected[i])));
    }
    return largest;
}

/// Whether two figures agree to `bound`, of their size where they are large; what is no finite number agrees with
/// such.
inline bool agrees(double given, double expected, double bound) {
    if (!std::isfinite(given) || !std::isfinite(expected)) { return std::isfinite(given) == std::isfinite(expected); }
    return std::abs(given - expected) <= bound * (1 + std::abs(expected));
}
