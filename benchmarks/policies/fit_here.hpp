// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

#include "../common/measure.hpp"
#include "links.hpp"

namespace benchmarks::policies {

/// Links fitted to a few collectives of fp32 elements over the world, in place. Collective; the same on every rank.
/// Method:  one call after the other works on the next part of a large buffer, since a step's collectives find their
///          buffers in no cache.
/// @pre at least two ranks
inline FittedLinks fit_here(shardkit::Rank& rank) {
    constexpr std::array<std::size_t, 5> sizes{std::size_t{4} << 10U, std::size_t{64} << 10U, std::size_t{512} << 10U,
                                               std::size_t{2} << 20U, std::size_t{8} << 20U};
    constexpr std::size_t rounds = 9;
    const std::size_t ranks = rank.world_size();
    const auto& world = rank.world();
    const auto stream = rank.communication_stream();
    const std::size_t arena = std::max(2 * sizes.back(), (std::size_t{256} << 20U) / ranks) / sizeof(float);
    auto buffer = rank.template buffer<float>(arena + ranks);
    std::size_t at = 0;
    FittedLinks fitted;
    fitted.source = "fitted to collectives of this run over " + std::to_string(ranks) + " ranks, 4 KiB to 8 MiB";
    for (std::size_t v = 0; v < step_verbs.size(); ++v) {
        std::vector<LinkSample> samples;
        for (const std::size_t size : sizes) {
            const std::size_t piece = std::max<std::size_t>(1, size / sizeof(float) / ranks);
            const std::size_t count = piece * ranks;
            const std::size_t calls = std::max<std::size_t>(1, std::min<std::size_t>(50, (4U << 20U) / size));
            const auto work = [&] {
                for (std::size_t i = 0; i < calls; ++i) {
                    at = at + count > buffer.size() ? 0 : at;
                    const std::span<float> values = buffer.span().subspan(at, count);
                    at += (count + 31) / 32 * 32;
                    switch (step_verbs[v]) {
                        case shardkit::Verb::all_gather:
                            shardkit::all_gather_in_place(world, values, stream);
                            break;
                        case shardkit::Verb::reduce_scatter:
                            shardkit::reduce_scatter_in_place(world, shardkit::ReduceOp::sum, values, stream);
                            break;
                        default:
                            shardkit::all_reduce_in_place(world, shardkit::ReduceOp::sum, values, stream);
                    }
                }
                stream.synchronize();
            };
            work();
            std::vector<Interval> own(rounds);
            for (Interval& each : own) { each = timed(rank, work); }
            const std::vector<double> seconds = world_seconds(rank, std::span<const Interval>(own));
            const auto n = static_cast<double>(ranks);
            const double factor = (step_verbs[v] == shardkit::Verb::all_reduce ? 2 : 1) * (n - 1) / n;
            samples.push_back({shardkit::detail::ring_messages(step_verbs[v], ranks),
                               static_cast<double>(count * sizeof(float)) * factor,
                               summarise(seconds).median / static_cast<double>(calls)});
        }
        fitted.verbs[v] = fit_link(samples);
    }
    return fitted;
}

}  // namespace benchmarks::policies
