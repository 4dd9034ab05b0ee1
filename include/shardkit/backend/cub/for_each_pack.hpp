// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/first_ending_after.hpp>
#include <shardkit/backend/cub/tiling.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu {

/// One thread's share of a pass: step.template at<Lanes>(position) where vector number `vector` is whole and aligned,
/// else step.template at<1>(position) for each of its positions.
template <std::size_t Lanes, class Step>
constexpr void for_each_pack(const Tiling<Lanes>& tiling, std::uint64_t vector, const Step& step) {
    const IndexRange range = tiling.positions(vector);
    if (tiling.takes_packs(range)) {
        step.template at<Lanes>(range.begin);
    } else {
        for (std::uint64_t position = range.begin; position < range.end; ++position) {
            step.template at<1>(position);
        }
    }
}

/// The same for the positions that lie in one of `count` sorted, disjoint ranges, which `step` gets as well:
/// step.template at<N>(position, range). The range is looked for once per vector; a vector that the border of a
/// range cuts is taken element by element.
template <std::size_t Lanes, class Range, class Step>
constexpr void for_each_pack_in(const Tiling<Lanes>& tiling, std::uint64_t vector, const Range* ranges,
                                std::size_t count, const Step& step) {
    const IndexRange positions = tiling.positions(vector);
    std::size_t at = first_ending_after(ranges, count, positions.begin);
    if (at < count && ranges[at].begin <= positions.begin && positions.end <= ranges[at].end &&
        tiling.takes_packs(positions)) {
        step.template at<Lanes>(positions.begin, ranges[at]);
        return;
    }
    for (; at < count && ranges[at].begin < positions.end; ++at) {
        const std::uint64_t end = ranges[at].end < positions.end ? ranges[at].end : positions.end;
        std::uint64_t position = ranges[at].begin > positions.begin ? ranges[at].begin : positions.begin;
        for (; position < end; ++position) { step.template at<1>(position, ranges[at]); }
    }
}

}  // namespace shardkit::gpu
