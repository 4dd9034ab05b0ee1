// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace benchmarks {

/// Says how often something is called before and while it is timed, and how often its results are checked.
struct Repeats {
    std::size_t warmup = 5;
    std::size_t calls = 0;  ///< back to back in a round; 0: as many as calls_for(bytes) says
    std::size_t rounds = 15;
    std::size_t checks = 1;
    std::size_t least_calls = 1;                           ///< of a round, where `calls` is 0
    std::uint64_t round_bytes = std::uint64_t{64} << 20U;  ///< that the calls of a round add up to

    /// A GPU is many times as fast, and the time of a round holds one launch and one wait besides: as many calls as
    /// nccl-tests makes at least.
    void for_gpu() noexcept {
        least_calls = 20;
        round_bytes = std::uint64_t{8} << 30U;
    }

    /// Returns the calls of a round: as given, or those that add up to round_bytes, from least_calls to 200.
    std::size_t calls_for(std::uint64_t bytes) const noexcept {
        if (calls > 0) { return calls; }
        return static_cast<std::size_t>(std::clamp<std::uint64_t>(round_bytes / (bytes + 1), least_calls, 200));
    }
};

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
    std::string_view way;     ///< of the plain copy, the fastest: "memcpy"
    Summary time;
};

/// Holds what was measured of one workload.
struct Figure {
    Summary time;                        ///< of one call, over all ranks, in seconds
    std::size_t calls = 0;               ///< back to back in each round
    std::optional<std::uint64_t> wrong;  ///< values, over all ranks and checks; none: not checked
    std::optional<CopyFigure> copy;      ///< none: nothing has to be copied
};

}  // namespace benchmarks
