// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>

namespace shardkit::detail {

/// Returns every rank's values, by rank; each passes as many. They travel as doubles, as those of the norm do, so
/// that the engine needs no further verb.
/// Order:   collective over the world; the host waits.
template <class Engine>
List<double> gather_values(Context<Engine>& context, std::span<const double> mine, engine::CallSite site) {
    const EngineTable<Engine, double> given(context, mine);
    const auto gathered = EngineTable<Engine, double>::zeroed(context, mine.size() * context.world_size());
    const auto stream = context.compute_stream();  // the table was written in it
    all_gather(context.world(), std::span<const double>(given.span()), gathered.span(), stream, site);
    List<double> all(gathered.size());
    Engine::Kernels::copy_out(stream, std::span<const double>(gathered.span()),
                              std::span<double>(all.data(), all.size()));
    return all;
}

/// Integers of all ranks, which have travelled as the doubles of their halves.
struct GatheredNumbers {
    List<double> halves;
    std::size_t each = 0;  ///< numbers of a rank

    std::uint64_t of(std::size_t rank, std::size_t i) const {
        const double* const at = halves.data() + 2 * (rank * each + i);
        return half(at[0]) << 32U | half(at[1]);
    }

  private:
    /// 0 for what is no half of a number, as after a fault of memory: ranks that compare find another number then.
    static std::uint64_t half(double value) noexcept {
        return value >= 0 && value < 0x1p32 ? static_cast<std::uint64_t>(value) : 0;
    }
};
/// Returns every rank's integers, by rank; each passes as many, likewise.
template <class Engine>
GatheredNumbers gather_numbers(Context<Engine>& context, std::span<const std::uint64_t> mine, engine::CallSite site) {
    List<double> halves;
    for (const std::uint64_t number : mine) {
        halves.push_back(static_cast<double>(number >> 32U));
        halves.push_back(static_cast<double>(number & 0xffff'ffffU));
    }
    return {gather_values(context, halves.span(), site), mine.size()};
}

}  // namespace shardkit::detail
