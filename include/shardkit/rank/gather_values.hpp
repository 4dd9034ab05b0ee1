// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>

namespace shardkit::detail {

/// Returns every rank's values, by rank; each passes as many. They travel as doubles, as those of the norm do, so
/// that the engine needs no further verb.
/// Order:   collective over the world; the host waits.
template <class Engine>
std::vector<double> gather_values(Context<Engine>& context, std::span<const double> mine, CallSite site) {
    const EngineTable<Engine, double> given(context, mine);
    const auto gathered = EngineTable<Engine, double>::zeroed(context, mine.size() * context.world_size());
    const auto stream = context.compute_stream();  // the table was written in it
    all_gather(context.world(), std::span<const double>(given.span()), gathered.span(), stream, site);
    std::vector<double> all(gathered.size());
    Engine::Kernels::copy_out(stream, std::span<const double>(gathered.span()), std::span<double>(all));
    return all;
}

}  // namespace shardkit::detail
