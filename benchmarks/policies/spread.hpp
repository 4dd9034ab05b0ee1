// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace benchmarks::policies {

/// Of the rounds' times, in seconds.
struct Spread {
    double median = 0;
    double min = 0;
    double p99 = 0;  ///< the largest of fewer than 100
};

/// @pre at least one value
inline Spread spread_of(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const std::size_t n = seconds.size();
    const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(n))) - 1;
    return {(seconds[(n - 1) / 2] + seconds[n / 2]) / 2, seconds.front(), seconds[p99]};
}

}  // namespace benchmarks::policies
