// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/mesh/context.hpp>

#include "../common/machine.hpp"
#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "console.hpp"
#include "overhead_cases.hpp"

namespace benchmarks::peers {

/// Every case at a tiny and a middle size: rounds of verbs and of bare calls in turns, seconds of the slowest rank
/// for one pass each. One line of JSON from rank 0. Collective over the world.
template <class Engine>
void measure_overhead(shardkit::Context<Engine>& context, std::size_t rounds) {
    pin_to(allowed_processors(), context.rank());
    nlohmann::json rows = nlohmann::json::array();
    for (const std::string_view name : overhead_names) {
        for (const std::size_t elements : {std::size_t{64}, std::size_t{1} << 18U}) {
            const auto measured = make_overhead_case(context, name, elements);
            std::uint64_t wrong = measured->count_wrong();
            reduce_over_world(context, shardkit::ReduceOp::sum, std::span<std::uint64_t>(&wrong, 1));
            const std::size_t passes = elements <= 64 ? 2000 : 40;
            measured->wrapped(passes / 4);
            measured->bare(passes / 4);
            std::vector<double> seconds(2 * rounds);
            for (std::size_t round = 0; round < rounds; ++round) {
                seconds[round] = timed(context, [&] { measured->wrapped(passes); });
                seconds[rounds + round] = timed(context, [&] { measured->bare(passes); });
            }
            reduce_over_world(context, shardkit::ReduceOp::max, std::span<double>(seconds));
            for (double& value : seconds) { value /= static_cast<double>(passes); }
            const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(rounds);
            rows.push_back({{"case", name},
                            {"bytes", elements * sizeof(float)},
                            {"verbs", measured->verbs()},
                            {"wrong", wrong},
                            {"wrapped", std::vector<double>(seconds.begin(), half)},
                            {"bare", std::vector<double>(half, seconds.end())}});
        }
    }
    if (context.rank() != 0) { return; }
    const Machine machine = Machine::read();
    answer({{"engine", Engine::name},
            {"ranks", context.world_size()},
            {"compiler", machine.compiler},
            {"flags", machine.flags},
            {"pinned", true},
            {"rows", rows}});
}

}  // namespace benchmarks::peers
