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

/// One pass of several equal ones in a table on the device. `end` is the end of its works, counted from the start of
/// the table; in an entry that is not in a table yet, their number.
template <class Pass>
struct BatchEntry {
    Pass pass;
    std::uint64_t end;
};

/// Makes an entry for a pass with `works` works, rounded up to full warps, so that no warp has works of two passes.
template <class Pass>
BatchEntry<Pass> batch_entry(const Pass& pass, std::uint64_t works) noexcept {
    return {pass, (works + warp - 1) / warp * warp};
}

/// Runs one work of a batch of passes, as the multi-tensor kernels of Apex and PyTorch do. The pass is found by the
/// work's number, with the same search for all threads of a warp, and gets the rest of the number.
template <class Pass>
struct BatchPass {
    const BatchEntry<Pass>* entries;
    std::size_t count;
    std::uint64_t begin;  ///< number of works in the table before these entries

    constexpr void operator()(std::uint64_t work) const {
        const std::uint64_t number = begin + work;
        const std::size_t found = first_ending_after(entries, count, number);
        const std::uint64_t own = number - (found == 0 ? begin : entries[found - 1].end);
        const Pass& pass = entries[found].pass;
        if (own < pass.tiling.indices()) { pass(own); }
    }
};

/// Runs all passes of `batch` in one launch.
/// @pre no two passes write the same element
template <class Pass, class Launch>
void run_batch(const Launch& launch, const LaunchBatch<BatchEntry<Pass>>& batch, std::string_view kernel) {
    const BatchPass<Pass> all{batch.entries.data(), batch.entries.size(), batch.begin};
    launch(batch.end - batch.begin, all, kernel);
}

}  // namespace shardkit::gpu::detail
