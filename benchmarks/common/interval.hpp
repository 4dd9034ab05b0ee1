// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/comm/barrier.hpp>
#include <shardkit/rank/context.hpp>

#include "clock_id.hpp"
#include "over_world.hpp"

namespace benchmarks {

/// From where to where a rank was at something, in nanoseconds of its machine's steady clock.
struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// Nanoseconds of the steady clock.
inline std::int64_t nanoseconds_now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

/// When this rank was at work(), which no rank begins before all have come.
template <class Engine, class Work>
Interval timed(shardkit::Context<Engine>& context, Work work) {
    const auto stream = context.communication_stream();
    shardkit::barrier(context.world(), stream);
    stream.synchronize();
    Interval interval;
    interval.begin = nanoseconds_now();
    work();
    interval.end = nanoseconds_now();
    return interval;
}

/// Seconds of each thing over all ranks, where this rank was at it from `own[i].begin` to `own[i].end`: from the
/// first rank's begin to the last one's end. Ranks that had to take turns, as there are more of them than processors,
/// so count as what they are. Ranks of several machines, whose clocks differ: the longest of their own times.
/// Collective.
/// @param clock which steady clock this rank reads
template <class Engine>
std::vector<double> world_seconds(shardkit::Context<Engine>& context, std::span<const Interval> own,
                                  std::int64_t clock = clock_id()) {
    constexpr std::size_t each = 3;
    std::vector<std::int64_t> largest{clock, -clock};
    for (const Interval& interval : own) {
        largest.insert(largest.end(), {-interval.begin, interval.end, interval.end - interval.begin});
    }
    reduce_over_world(context, shardkit::ReduceOp::max, std::span<std::int64_t>(largest));
    const bool one_clock = largest[0] == -largest[1];
    std::vector<double> seconds;
    for (std::size_t i = 2; i < largest.size(); i += each) {
        const std::int64_t nanoseconds = one_clock ? largest[i + 1] + largest[i] : largest[i + 2];
        seconds.push_back(static_cast<double>(nanoseconds) * 1e-9);
    }
    return seconds;
}

}  // namespace benchmarks
