// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/plan/engine_traits.hpp>
#include <shardkit/plan/part_from_peers.hpp>

namespace shardkit {

/// Bytes that an all-reduce of `addends` bytes into `result` bytes moves per rank, the mean over ranks: reduced by
/// parts that are then gathered, or, where it is small and the engine does that, gathered by everybody.
constexpr std::uint64_t all_reduce_moved(std::uint64_t addends, std::uint64_t result, std::uint64_t ranks,
                                         const EngineTraits& engine = {}) noexcept {
    if (engine.gathers_all_reduce(addends, ranks)) { return addends * (ranks - 1); }
    return detail::part_from_peers(addends, ranks) + detail::part_from_peers(result, ranks);
}

}  // namespace shardkit
