// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/detail/list.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_gather.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns every rank's numbers, by rank; each passes as many.
/// Order:   collective over the world; the host waits.
template <class Numbers>
auto gather_values(Rank& rank, const Numbers& numbers, engine::CallSite site) {
    const std::span mine(numbers);
    using T = typename decltype(mine)::value_type;
    const EngineTable<T> given(rank, std::span<const T>(mine));
    const auto gathered = EngineTable<T>::zeroed(rank, mine.size() * rank.world_size());
    const auto stream = rank.compute_stream();  // the table was written in it
    all_gather(rank.world(), std::span<const T>(given.span()), gathered.span(), stream, site);
    List<T> all(gathered.size());
    host::AnyKernels::copy_out(stream, std::span<const T>(gathered.span()), std::span<T>(all.data(), all.size()));
    return all;
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
