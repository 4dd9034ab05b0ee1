// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/rank/launch_batch.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

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

/// Runs all passes of `batch` in one launch.
/// @pre no two passes write the same element
template <class Pass, class Launch>
void run_batch(const Launch& launch, const engine::LaunchBatch<BatchEntry<Pass>>& batch, std::string_view kernel) {
    const BatchPass<Pass> all{batch.entries.data(), static_cast<std::uint32_t>(batch.entries.size()), batch.begin};
    launch(batch.end - batch.begin, all, kernel);
}

}  // namespace shardkit::gpu::detail
