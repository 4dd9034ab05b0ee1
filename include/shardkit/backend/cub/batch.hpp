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

/// Holds a pass among others of its kind, in a table on the device. `end`: of its works, counted from the table's
/// start; alone, their number.
template <class Pass>
struct BatchEntry {
    Pass pass;
    std::uint64_t end;
};

/// Makes an entry of `works` works of a pass, as many as fill warps, so that no warp has works of two.
template <class Pass>
BatchEntry<Pass> batch_entry(const Pass& pass, std::uint64_t works) noexcept {
    return {pass, (works + warp - 1) / warp * warp};
}

/// Does one work of a batch of passes, as the multi-tensor kernels of Apex and PyTorch do: the pass is looked for by
/// the work's number, which is the same search for all of a warp, and takes the rest of the number as its own.
template <class Pass>
struct BatchPass {
    const BatchEntry<Pass>* entries;
    std::size_t count;
    std::uint64_t begin;  ///< works of the table before these entries

    constexpr void operator()(std::uint64_t work) const {
        const std::uint64_t number = begin + work;
        const std::size_t found = first_ending_after(entries, count, number);
        const std::uint64_t own = number - (found == 0 ? begin : entries[found - 1].end);
        const Pass& pass = entries[found].pass;
        if (own < pass.tiling.indices()) { pass(own); }
    }
};

/// Runs all passes of `batch` in one launch.
/// @pre no two write the same element
template <class Pass, class Launch>
void run_batch(const Launch& launch, const LaunchBatch<BatchEntry<Pass>>& batch, std::string_view kernel) {
    const BatchPass<Pass> all{batch.entries.data(), batch.entries.size(), batch.begin};
    launch(batch.end - batch.begin, all, kernel);
}

}  // namespace shardkit::gpu::detail
