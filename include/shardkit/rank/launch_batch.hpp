// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace shardkit {

/// Holds neighbouring entries of a table in an engine's memory: what one launch takes. Each says in `end` where its
/// works end, counted from the table's start; those of the batch are [begin, end).
template <class Entry>
struct LaunchBatch {
    std::span<const Entry> entries;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

}  // namespace shardkit
