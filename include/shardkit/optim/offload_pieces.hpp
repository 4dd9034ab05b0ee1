// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// Parts of a piece begin at a multiple of these bytes in a slot.
inline constexpr std::size_t piece_alignment = 128;

/// A part of an offloaded group's elements that is updated at a time, and the ranges that lie in it.
struct OffloadPiece {
    IndexRange elements;  ///< relative to those that the rank updates
    IndexRange ranges;    ///< of the group's ranges, which count from the piece's first element
};

/// Cuts sorted ranges of `elements` at pieces of `piece` elements, which it returns, and counts each from the first
/// element of its piece. `numbered`: whether they have the numbers of their first elements. Pieces without a range
/// are left out.
inline List<OffloadPiece> cut_at_pieces(List<rules::UpdateRange>& ranges, std::size_t elements, std::size_t piece,
                                        bool numbered) {
    List<OffloadPiece> pieces;
    List<rules::UpdateRange> cut;
    for (const rules::UpdateRange& whole : ranges) {
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
    ranges = std::move(cut);
    return pieces;
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_BUILD {

/// What an optimizer keeps of an offloaded group beside its states.
struct OffloadedGroup {
    std::size_t piece = 0;  ///< elements of a piece; 0 where nothing is offloaded
    List<OffloadPiece> pieces{};
    List<rules::UpdateRange> host_ranges{};    ///< of a group that is updated on the host
    List<std::function<void()>> host_calls{};  ///< likewise: of each piece one for each slot

    /// Cuts the group's ranges at its pieces, if there are any. @returns whether it is updated on the host
    bool cut(List<rules::UpdateRange>& ranges, const GroupGeometry& group, bool numbered) {
        if (piece == 0) { return false; }
        pieces = on_device({}).cut(ranges, group.updated.size(), piece, numbered);
        if (group.offload != Offload::update) { return false; }
        host_ranges = ranges;
        return true;
    }
};

}  // namespace shardkit::detail SHARDKIT_BUILD
