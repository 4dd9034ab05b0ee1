// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::test {

/// Ways to cut `count` elements into runs; the updates' numbers are below 3.
inline std::vector<std::vector<rules::UpdateRange>> runs_of(std::size_t count) {
    std::vector<std::vector<rules::UpdateRange>> all{{{0, count, 1}}, {}};
    if (count >= 2) { all.push_back({{0, count / 2, 2}, {count / 2, count, 0}}); }  // without a gap
    if (count >= 3) { all.push_back({{1, count - 1, 0}}); }                         // gaps at both ends
    std::vector<rules::UpdateRange> many;  // of lengths 0, 1, 2, ... with gaps of lengths 0, 1, 2
    for (std::size_t at = 0, i = 0; at < count; ++i) {
        const std::size_t end = at + i % 23 < count ? at + i % 23 : count;
        many.push_back({at, end, static_cast<std::uint32_t>(i % 3)});
        at = end + i % 3;
    }
    all.push_back(many);
    return all;
}

inline std::vector<IndexRange> ranges_of(const std::vector<rules::UpdateRange>& runs) {
    std::vector<IndexRange> ranges;
    for (const rules::UpdateRange& run : runs) { ranges.push_back({run.begin, run.end}); }
    return ranges;
}

}  // namespace shardkit::test
