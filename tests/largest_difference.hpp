// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>

/// The largest |a[i] - b[i]| of two containers; a NaN stays, and sizes that differ are infinitely far apart.
template <class Given, class Expected>
double largest_difference(const Given& given, const Expected& expected) {
    if (given.size() != expected.size()) { return HUGE_VAL; }
    double largest = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const double difference = std::abs(static_cast<double>(given[i]) - static_cast<double>(expected[i]));
        if (!(difference <= largest)) { largest = difference; }
    }
    return largest;
}
