// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::test {

/// The norm's table of `segments` of `all`, which may be a device's memory.
template <class T>
std::vector<engine::NormPiece<T>> norm_pieces(std::span<const T> all, const std::vector<IndexRange>& segments) {
    std::vector<std::span<const T>> runs;
    for (const IndexRange segment : segments) { runs.push_back(all.subspan(segment.begin, segment.size())); }
    return engine::norm_table(std::span<const std::span<const T>>(runs));
}
/// The positions of the pieces [first, last).
template <class T>
IndexRange positions_of(const std::vector<engine::NormPiece<T>>& pieces, std::size_t first, std::size_t last) {
    return first == last ? IndexRange{} : IndexRange{pieces[first].begin, pieces[last - 1].end};
}
template <class T>
IndexRange positions_of(const std::vector<engine::NormPiece<T>>& pieces) {
    return positions_of(pieces, 0, pieces.size());
}

}  // namespace shardkit::test
