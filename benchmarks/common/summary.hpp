// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace benchmarks {

/// What is reported of repeated timings, in seconds.
struct Summary {
    double median = 0;
    double min = 0;
    double p95 = 0;
};

/// @pre at least one value   @post min <= median <= p95, all of them values that were measured, or the mean of the
/// two in the middle
inline Summary summarise(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const std::size_t n = seconds.size();
    const double median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
    const auto p95 = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(n))) - 1;
    return {median, seconds.front(), std::max(median, seconds[p95])};
}

}  // namespace benchmarks
