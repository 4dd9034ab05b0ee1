// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace shardkit::engine {

/// Adjacent entries of a table in an engine's memory, for one launch. The `end` of an entry is where its works end,
/// counted from the start of the table; the works of the batch are [begin, end).
template <class Entry>
struct LaunchBatch {
    std::span<const Entry> entries;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

}  // namespace shardkit::engine
