// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit::detail {

/// Bytes that a ring or a direct exchange moves per rank: each of n ranks receives all but its own part.
constexpr std::uint64_t part_from_peers(std::uint64_t bytes, std::uint64_t ranks) noexcept {
    return bytes / ranks * (ranks - 1) + bytes % ranks * (ranks - 1) / ranks;
}

}  // namespace shardkit::detail
