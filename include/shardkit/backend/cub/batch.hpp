// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>

namespace shardkit::gpu::detail {

/// One pass of several equal ones in a table on the device. It has `works` works, in full warps, so that no warp has
/// works of two passes. `end` is the end of its works, counted from the start of the table; in an entry that is not
/// in a table yet, their number.
template <class Pass>
struct BatchEntry {
    Pass pass;
    std::uint64_t works;
    std::uint64_t end;
};

/// Runs one work of a batch of passes, as the multi-tensor kernels of Apex and PyTorch do. The pass is found by the
/// work's number, with one search for all vectors of a work, the same for all threads of a warp, and gets the rest of
/// the number.
template <class Pass>
struct BatchPass {
    static constexpr std::size_t vectors_in_turn = Pass::vectors_in_turn;
    static constexpr unsigned least_blocks = Pass::least_blocks;

    const BatchEntry<Pass>* entries;
    std::uint32_t count;  ///< in 32 bits, so that the search leaves the update its registers
    std::uint64_t begin;  ///< number of works in the table before these entries

    constexpr void operator()(std::uint64_t work) const {
        const std::uint64_t number = begin + work;
        const BatchEntry<Pass>& entry = entries[first_ending_after(entries, count, number)];
        // By the entry alone, not by the end of the one before: what the search begins with needs no register then.
        entry.pass(number + entry.works - entry.end);
    }
};

}  // namespace shardkit::gpu::detail
