// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/mesh/context.hpp>

#include "copy_yardstick.hpp"
#include "figure.hpp"
#include "repeats.hpp"
#include "workload.hpp"

namespace benchmarks {

/// Numbers of this rank reduced over all ranks of the world, in every rank's hands.
template <class Engine, class T>
void reduce_over_world(shardkit::Context<Engine>& context, shardkit::ReduceOp op, std::span<T> values) {
    const auto stream = context.communication_stream();
    auto buffer = context.template buffer<T>(values.size());
    Engine::Kernels::copy_in(stream, std::span<const T>(values), buffer.span());
    shardkit::all_reduce_in_place(context.world(), op, buffer.span(), stream);
    Engine::Kernels::copy_out(stream, std::span<const T>(buffer.span()), values);
}

/// Seconds of this rank for work(), which all ranks begin together.
template <class Engine, class Work>
double timed(shardkit::Context<Engine>& context, Work work) {
    const auto stream = context.communication_stream();
    shardkit::barrier(context.world(), stream);
    stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

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

/// Checks, warms up, and times in rounds: calls back to back, then as many copies through the caches and past them,
/// all ranks at once. A round's time is the slowest rank's. Collective over the world, on which all ranks work, so
/// that sub-meshes disturb each other as they do in training.
/// `copied`: bytes that each rank copies as the yardstick; 0 for none.
/// Method:  performance figures of a machine that is never quiet are compared only with what is measured in turns
///          with them, and by medians.
template <class Engine>
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

    CopyYardstick yardstick(copied);
    const bool streams = copied >= CopyYardstick::least_streamed;
    std::vector<double> seconds(3 * repeats.rounds);  // calls, copies through the caches, copies past them
    const std::size_t n = figure.calls;
    for (std::size_t round = 0; round < repeats.rounds; ++round) {
        double* const each = seconds.data() + round;
        each[0] = timed(context, [&] { workload.call(n); });
        if (copied == 0) { continue; }
        each[repeats.rounds] = timed(context, [&] {
            for (std::size_t i = 0; i < n; ++i) { yardstick.copy(); }
        });
        if (!streams) { continue; }
        each[2 * repeats.rounds] = timed(context, [&] {
            for (std::size_t i = 0; i < n; ++i) { yardstick.stream(); }
        });
    }
    reduce_over_world(context, shardkit::ReduceOp::max, std::span<double>(seconds));

    const auto summary_of = [&](std::size_t row) {
        std::vector<double> times(repeats.rounds);
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] = seconds[row * repeats.rounds + i] / static_cast<double>(n);
        }
        return summarise(times);
    };
    figure.time = summary_of(0);
    if (copied > 0) {
        figure.copy = CopyFigure{copied, false, summary_of(1)};
        if (streams) {
            const Summary past = summary_of(2);
            if (past.median < figure.copy->time.median) { figure.copy = CopyFigure{copied, true, past}; }
        }
    }
    return figure;
}

}  // namespace benchmarks
