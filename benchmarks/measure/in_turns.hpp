// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <shardkit/rank/rank.hpp>

#include "figure.hpp"
#include "interval.hpp"
#include "plain_copy.hpp"
#include "workload.hpp"

namespace benchmarks {

/// Returns how many values are wrong, over all ranks and checks. Collective over the world.
inline std::uint64_t wrong_values(shardkit::Rank& rank, std::size_t checks, Workload& workload) {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < checks; ++i) {
        workload.prepare();
        workload.call(1);
        wrong += workload.count_wrong();
    }
    reduce_over_world(rank, shardkit::ReduceOp::sum, std::span<std::uint64_t>(&wrong, 1));
    return wrong;
}

/// Makes calls back to back, as many as it is told, and waits for them: what is timed in turns with others.
using Turn = std::function<void(std::size_t)>;

/// Times things in rounds, one after the other in each: `calls` calls back to back, all ranks at once. Returns the
/// seconds of one call of each, as world_seconds counts. Collective over the world.
/// Method:  performance figures of a machine that is never quiet are compared only with what is measured in turns
///          with them, and by medians. Each turn begins with a call that is not timed, as the one before has left
///          other data in the caches.
/// @pre     at least one round and one call
inline std::vector<Summary> time_in_turns(shardkit::Rank& rank, std::size_t rounds, std::size_t calls,
                                          std::span<const Turn> turns) {
    std::vector<Interval> own(turns.size() * rounds);  // those of the first thing, then the next one's
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < turns.size(); ++i) {
            turns[i](1);
            own[i * rounds + round] = timed(rank, [&] { turns[i](calls); });
        }
    }
    const std::vector<double> seconds = world_seconds(rank, own);
    std::vector<Summary> summaries;
    for (auto first = seconds.begin(); first != seconds.end(); first += static_cast<std::ptrdiff_t>(rounds)) {
        std::vector<double> times(first, first + static_cast<std::ptrdiff_t>(rounds));
        for (double& time : times) { time /= static_cast<double>(calls); }
        summaries.push_back(summarise(std::move(times)));
    }
    return summaries;
}

/// Checks a workload or, without checks, only prepares it; then warms it up. Returns what is known so far of its
/// figure. Collective over the world.
inline Figure checked(shardkit::Rank& rank, const Repeats& repeats, std::uint64_t bytes, Workload& workload) {
    Figure figure;
    figure.calls = repeats.calls_for(bytes);
    if (repeats.checks > 0) {
        figure.wrong = wrong_values(rank, repeats.checks, workload);
    } else {
        workload.prepare();
    }
    workload.call(repeats.warmup);
    return figure;
}

/// Adds plain copies to things that are timed in turns, in each way that is worth a try, warmed up; none where
/// nothing is copied.
inline void add_copies(const Repeats& repeats, std::uint64_t copied, PlainCopy& copy, std::vector<Turn>& turns) {
    const std::size_t ways = copied == 0 ? 0 : copy.ways_for(copied);
    for (std::size_t way = 0; way < ways; ++way) {
        copy.call(way, repeats.warmup);
        turns.emplace_back([&copy, way](std::size_t times) { copy.call(way, times); });
    }
}

/// Returns the fastest of such copies, from the times of all ways; none of no times.
inline std::optional<CopyFigure> fastest_copy(const PlainCopy& copy, std::uint64_t copied,
                                              std::span<const Summary> times) {
    std::optional<CopyFigure> fastest;
    for (std::size_t way = 0; way < times.size(); ++way) {
        if (fastest && times[way].median >= fastest->time.median) { continue; }
        fastest = CopyFigure{copied, copy.way(way), times[way]};
    }
    return fastest;
}

/// Checks a workload, warms it up, and times it in turns with a plain copy. Collective over the world, on which all
/// ranks work, so that sub-meshes disturb each other as they do in training.
/// @param bytes   that a call moves, for the number of calls of a round
/// @param copied  bytes that each rank copies plainly; 0: none
/// @throws what the workload throws; std::bad_alloc
inline Figure time_beside_copy(shardkit::Rank& rank, const Repeats& repeats, std::uint64_t bytes,
                               std::uint64_t copied, Workload& workload) {
    Figure figure = checked(rank, repeats, bytes, workload);
    PlainCopy copy(rank, copied);
    std::vector<Turn> turns{[&](std::size_t times) { workload.call(times); }};
    add_copies(repeats, copied, copy, turns);
    const std::vector<Summary> times = time_in_turns(rank, repeats.rounds, figure.calls, std::span(turns));
    figure.time = times.front();
    figure.copy = fastest_copy(copy, copied, std::span(times).subspan(1));
    return figure;
}

}  // namespace benchmarks
