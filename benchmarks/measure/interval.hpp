// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

namespace benchmarks {

/// Returns a number above 0 for the steady clock that this process reads: the same on one machine until it starts
/// again, another one on another machine. Where the system does not tell, every process has a clock of its own.
inline std::int64_t clock_id() {
    static const std::int64_t id = [] {
        constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        std::ifstream file("/proc/sys/kernel/random/boot_id");
        std::string boot;
        const std::uint64_t number = std::getline(file, boot)
                                         ? std::uint64_t{std::hash<std::string>{}(boot)}
                                         : std::uint64_t{std::random_device{}()} << 32U | std::random_device{}();
        return static_cast<std::int64_t>(number % largest + 1);
    }();
    return id;
}

/// Reduces numbers of this rank over all ranks of the world, into every rank's hands. Collective; the host waits.
template <class T>
void reduce_over_world(shardkit::Rank& rank, shardkit::ReduceOp op, std::span<T> values) {
    const auto stream = rank.communication_stream();
    auto buffer = rank.template buffer<T>(values.size());
    shardkit::host::AnyKernels::copy_in(stream, std::span<const T>(values), buffer.span());
    shardkit::all_reduce_in_place(rank.world(), op, buffer.span(), stream);
    shardkit::host::AnyKernels::copy_out(stream, std::span<const T>(buffer.span()), values);
}

/// Holds from when to when a rank was at something, in nanoseconds of its machine's steady clock.
struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// Returns the nanoseconds of the steady clock.
inline std::int64_t nanoseconds_now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

/// Returns when all ranks have come. Collective.
inline void meet(const shardkit::Rank& rank) {
    const auto stream = rank.communication_stream();
    shardkit::barrier(rank.world(), stream);
    stream.synchronize();
}

/// Returns when this rank was at work(), which no rank begins before all have come. Collective.
template <class Work>
Interval timed(shardkit::Rank& rank, Work work) {
    meet(rank);
    Interval interval;
    interval.begin = nanoseconds_now();
    work();
    interval.end = nanoseconds_now();
    return interval;
}

/// Returns the seconds of each thing over all ranks, where this rank was at it from `own[i].begin` to `own[i].end`:
/// from the first rank's begin to the last one's end. Ranks that had to take turns, as there are more of them than
/// processors, so count as what they are. Ranks of several machines, whose clocks differ: the longest of their own
/// times. Collective.
/// @param clock which steady clock this rank reads
inline std::vector<double> world_seconds(shardkit::Rank& rank, std::span<const Interval> own,
                                         std::int64_t clock = clock_id()) {
    constexpr std::size_t each = 3;
    std::vector<std::int64_t> largest{clock, -clock};
    for (const Interval& interval : own) {
        largest.insert(largest.end(), {-interval.begin, interval.end, interval.end - interval.begin});
    }
    reduce_over_world(rank, shardkit::ReduceOp::max, std::span<std::int64_t>(largest));
    const bool one_clock = largest[0] == -largest[1];
    std::vector<double> seconds;
    for (std::size_t i = 2; i < largest.size(); i += each) {
        const std::int64_t nanoseconds = one_clock ? largest[i + 1] + largest[i] : largest[i + 2];
        seconds.push_back(static_cast<double>(nanoseconds) * 1e-9);
    }
    return seconds;
}

/// Returns the seconds of one piece of work on all ranks at once, as world_seconds counts. Collective.
template <class Work>
double world_seconds_of(shardkit::Rank& rank, Work work) {
    const Interval own = timed(rank, work);
    return world_seconds(rank, std::span<const Interval>(&own, 1)).front();
}

}  // namespace benchmarks
