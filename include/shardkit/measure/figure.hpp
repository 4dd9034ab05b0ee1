// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace shardkit::measure {

/// Holds what is reported of repeated timings, in seconds.
struct Summary {
    double median = 0;
    double min = 0;
    double p95 = 0;
    double p99 = 0;  ///< the largest of fewer than 100
};

/// Sorts timings and takes their median, least and percentiles.
/// @pre at least one value   @post min <= median <= p95 <= p99, all of them values that were measured, or the mean of
/// the two in the middle
inline Summary summarise(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const std::size_t n = seconds.size();
    const double median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
    const auto percentile = [&](double share) {
        return std::max(median, seconds[static_cast<std::size_t>(std::ceil(share * static_cast<double>(n))) - 1]);
    };
    return {median, seconds.front(), percentile(0.95), percentile(0.99)};
}

/// Holds the copy that stands beside what was timed as its limit.
struct CopyFigure {
    std::uint64_t bytes = 0;  ///< that each rank copies: as many are read and written again
    std::string_view way;     ///< of the yardstick, the fastest: "memcpy"
    Summary time;
};

/// Holds what was measured of one workload.
struct Figure {
    Summary time;                        ///< of one call, over all ranks, in seconds
    std::size_t calls = 0;               ///< back to back in each round
    std::optional<std::uint64_t> wrong;  ///< values, over all ranks and checks; none: not checked
    std::optional<CopyFigure> copy;      ///< none: nothing has to be copied
};

}  // namespace shardkit::measure
