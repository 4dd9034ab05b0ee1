// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>

namespace shardkit::gpu::detail {

/// One pass of several equal ones in a table on the device. It has `works` works, rounded up to full warps, so that
/// no warp has works of two passes. `end` is the end of its works, counted from the start of the table; in an entry
/// that is not in a table yet, their number.
template <class Pass>
struct BatchEntry {
    Pass pass;
    std::uint64_t works;
    std::uint64_t end;
};

/// Makes an entry for a pass.
template <class Pass>
BatchEntry<Pass> batch_entry(const Pass& pass) noexcept {
    const std::uint64_t works = (pass.tiling.indices() + warp - 1) / warp * warp;
    return {pass, works, works};
}

/// Runs one work of a batch of passes, as the multi-tensor kernels of Apex and PyTorch do. The pass is found by the
/// work's number, with the same search for all threads of a warp, and gets the rest of the number.
template <class Pass>
struct BatchPass {
    static constexpr unsigned least_blocks = [] {
        if constexpr (requires { Pass::least_blocks; }) { return Pass::least_blocks; }
        return 0U;
    }();

    const BatchEntry<Pass>* entries;
    std::uint32_t count;  ///< in 32 bits, so that the search leaves the update its registers
    std::uint64_t begin;  ///< number of works in the table before these entries

    constexpr void operator()(std::uint64_t work) const {
        const std::uint64_t number = begin + work;
        const BatchEntry<Pass>& entry = entries[first_ending_after(entries, count, number)];
        // By the entry alone, not by the end of the one before: what the search begins with needs no register then.
        const std::uint64_t own = number + entry.works - entry.end;
        if (own < entry.pass.tiling.indices()) { entry.pass(own); }
    }
};

}  // namespace shardkit::gpu::detail
