// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/rank.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "make_overhead_case.hpp"
#include "serve_collectives.hpp"

namespace benchmarks::peers {

template <class Work>
double seconds_of(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of every round of passes the median, of what stands at even (0) or odd (1) places.
inline std::vector<double> medians(const std::vector<double>& seconds, std::size_t which, std::size_t passes) {
    std::vector<double> found;
    for (std::size_t begin = 0; begin < seconds.size(); begin += 2 * passes) {
        std::vector<double> round;
        for (std::size_t pass = 0; pass < passes; ++pass) { round.push_back(seconds[begin + 2 * pass + which]); }
        found.push_back(summarise(round).median);
    }
    return found;
}

/// Every case at a tiny and, but for followed steps, a middle size: rounds of passes, seconds of the slowest rank
/// for a pass of the verbs and of the bare calls. One line of JSON from rank 0. Collective over the world.
inline void measure_overhead(shardkit::Rank& rank, std::size_t rounds) {
    pin_to(allowed_processors(), rank.rank());
    nlohmann::json rows = nlohmann::json::array();
    for (const std::string_view name : overhead_names) {
        for (const std::size_t elements : {std::size_t{64}, std::size_t{1} << 18U}) {
            // Two models' memory differs by more; and what a recorder takes depends on no size.
            if (has_one_size(name) && elements > 64) { continue; }
            const auto measured = make_overhead_case(rank, name, elements);
            std::uint64_t wrong = measured->count_wrong();
            reduce_over_world(rank, shardkit::ReduceOp::sum, std::span<std::uint64_t>(&wrong, 1));
            const std::size_t passes = elements <= 64 ? 1000 : 100;
            measured->wrapped(passes / 4);
            measured->bare(passes / 4);
            // Verbs and bare calls one by one in turns: on a machine that others use, neighbours alone compare. Which
            // of the two begins changes from pass to pass: of two equal calls over MPI the first takes longer.
            std::vector<double> seconds(2 * rounds * passes);
            for (std::size_t pass = 0; pass < rounds * passes; ++pass) {
                for (const bool bare : {pass % 2 != 0, pass % 2 == 0}) {
                    seconds[2 * pass + (bare ? 1 : 0)] =
                        seconds_of([&] { bare ? measured->bare(1) : measured->wrapped(1); });
                }
            }
            reduce_over_world(rank, shardkit::ReduceOp::max, std::span<double>(seconds));
            rows.push_back({{"case", name},
                            {"bytes", elements * sizeof(float)},
                            {"verbs", measured->verbs()},
                            {"wrong", wrong},
                            {"wrapped", medians(seconds, 0, passes)},
                            {"bare", medians(seconds, 1, passes)}});
        }
    }
    if (rank.rank() != 0) { return; }
    answer(facts(
        {{"engine", rank.world().engine_name()}, {"ranks", rank.world_size()}, {"pinned", true}, {"rows", rows}}));
}

}  // namespace benchmarks::peers
