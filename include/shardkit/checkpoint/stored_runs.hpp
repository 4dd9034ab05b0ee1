// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// Elements of a rank that follow each other in a file, and lie `stride` elements apart in its flat buffer.
struct StoredRun {
    std::uint64_t at = 0;  ///< place in the tensor, or first byte in the file
    std::size_t flat = 0;
    std::size_t count = 0;
    std::size_t stride = 1;
};

/// Returns the elements `held` of a part that are in places `within` of a tensor, in the order of the file. Their
/// flat indices are those in the part. Runs that go on from each other are one.
inline List<StoredRun> runs_of(const StoredOrder& order, const TensorPart& part, IndexRange held, IndexRange within) {
    List<StoredRun> runs;
    const auto add = [&](const StoredRun& run) {
        if (!runs.empty() && runs.back().at + runs.back().count == run.at) {
            StoredRun& last = runs.back();
            const std::size_t step = last.count > 1 ? last.stride : run.flat - last.flat;
            const bool goes_on = run.flat > last.flat && last.flat + last.count * step == run.flat;
            if (goes_on && (run.count == 1 || run.stride == step)) {
                last.stride = step;
                last.count += run.count;
                return;
            }
        }
        runs.push_back(run);
    };
    if (held.empty()) { return runs; }
    const IndexRange whole{part.whole_index(held.begin), part.whole_index(held.end - 1) + 1};
    const std::size_t stride = order.stride();
    order.for_each_run(within.begin, within.size(), [&](std::size_t place, std::size_t element, std::size_t count) {
        const auto steps_to = [&](std::size_t bound) {
            return element >= bound ? 0 : std::min(count, (bound - element - 1) / stride + 1);
        };
        const std::size_t first = steps_to(whole.begin);
        const std::size_t last = steps_to(whole.end);
        if (stride == 1) {
            part.for_each_run_within(element + first, element + last,
                                     [&](std::size_t index, std::size_t at, std::size_t run) {
                                         add({place + (at - element), index, run, 1});
                                     });
        } else if (part.block() == part.numel() && first < last) {  // one run of the whole tensor
            add({place + first, part.index_of(element + first * stride), last - first, stride});
        } else {
            for (std::size_t k = first; k < last; ++k) {
                const std::size_t index = part.index_of(element + k * stride);
                if (index < part.numel()) { add({place + k, index, 1, 1}); }
            }
        }
    });
    return runs;
}

}  // namespace shardkit::detail
