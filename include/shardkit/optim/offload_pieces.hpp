// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/update.hpp>

namespace shardkit::detail {

/// A part of an offloaded group's elements that is updated at a time, and the ranges that lie in it.
struct OffloadPiece {
    IndexRange elements;  ///< relative to those that the rank updates
    IndexRange ranges;    ///< of the group's ranges, which count from the piece's first element
};

/// Cuts sorted ranges of `elements` at pieces of `piece` elements, and counts each from the first element of its
/// piece. `numbered`: whether they have the numbers of their first elements. Pieces without a range are left out.
inline std::pair<std::vector<OffloadPiece>, std::vector<UpdateRange>> cut_at_pieces(
    std::span<const UpdateRange> ranges, std::size_t elements, std::size_t piece, bool numbered) {
    std::vector<OffloadPiece> pieces;
    std::vector<UpdateRange> cut;
    for (const UpdateRange& whole : ranges) {
        for (std::uint64_t from = whole.begin; from < whole.end;) {
            const std::size_t begin = static_cast<std::size_t>(from) / piece * piece;
            const std::uint64_t end = std::min<std::uint64_t>(whole.end, begin + piece);
            if (pieces.empty() || pieces.back().elements.begin != begin) {
                pieces.push_back({{begin, std::min(begin + piece, elements)}, {cut.size(), cut.size()}});
            }
            cut.push_back(
                {from - begin, end - begin, whole.update, numbered ? whole.element + (from - whole.begin) : 0});
            pieces.back().ranges.end = cut.size();
            from = end;
        }
    }
    return {std::move(pieces), std::move(cut)};
}

}  // namespace shardkit::detail
