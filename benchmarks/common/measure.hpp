// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/context.hpp>

#include "figure.hpp"
#include "interval.hpp"
#include "sweep.hpp"
#include "workload.hpp"

namespace benchmarks {

/// Values that are wrong, over all ranks and checks.
template <class Engine>
std::uint64_t check(shardkit::Context<Engine>& context, std::size_t checks, Workload& workload) {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < checks; ++i) {
        workload.prepare();
        workload.call(1);
        wrong += workload.count_wrong();
    }
    reduce_over_world(context, shardkit::ReduceOp::sum, std::span<std::uint64_t>(&wrong, 1));
    return wrong;
}

/// Checks, warms up, and times in rounds: calls back to back, then as many copies in each way of the yardstick, all
/// ranks at once. A round's time is world_seconds'. Collective over the world, on which all ranks work, so that
/// sub-meshes disturb each other as they do in training.
/// Yardstick: HostCopy or DeviceCopy, where the engine's memory is.
/// `copied`: bytes that each rank copies with it; 0 for none.
/// Method:  performance figures of a machine that is never quiet are compared only with what is measured in turns
///          with them, and by medians. Each turn begins with a call that is not timed, as the one before has left
///          other data in the caches. Every time ends with a wait for the rank's stream.
template <class Yardstick, class Engine>
Figure measure(shardkit::Context<Engine>& context, const Repeats& repeats, std::uint64_t bytes, std::uint64_t copied,
               Workload& workload) {
    Figure figure;
    figure.calls = repeats.calls_for(bytes);
    if (repeats.checks > 0) {
        figure.wrong = check(context, repeats.checks, workload);
    } else {
        workload.prepare();
    }
    workload.call(repeats.warmup);

    Yardstick yardstick(context, copied);
    const std::size_t ways = copied == 0 ? 0 : Yardstick::ways_for(copied);
    for (std::size_t way = 0; way < ways; ++way) { yardstick.call(way, repeats.warmup); }
    std::vector<Interval> own((1 + ways) * repeats.rounds);  // calls, then copies in each way
    const std::size_t n = figure.calls;
    const auto in_turn = [&](auto call) {
        call(1);
        return timed(context, [&] { call(n); });
    };
    for (std::size_t round = 0; round < repeats.rounds; ++round) {
        Interval* const each = own.data() + round;
        each[0] = in_turn([&](std::size_t times) { workload.call(times); });
        for (std::size_t way = 0; way < ways; ++way) {
            each[(1 + way) * repeats.rounds] = in_turn([&](std::size_t times) { yardstick.call(way, times); });
        }
    }
    const std::vector<double> seconds = world_seconds(context, own);

    const auto summary_of = [&](std::size_t row) {
        std::vector<double> times(repeats.rounds);
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] = seconds[row * repeats.rounds + i] / static_cast<double>(n);
        }
        return summarise(times);
    };
    figure.time = summary_of(0);
    for (std::size_t way = 0; way < ways; ++way) {
        const Summary time = summary_of(1 + way);
        if (!figure.copy || time.median < figure.copy->time.median) {
            figure.copy = CopyFigure{copied, Yardstick::ways[way], time};
        }
    }
    return figure;
}

}  // namespace benchmarks
