// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace shardkit::detail {

/// Allocates ranges of `bytes` bytes: the first free range that is large enough. A returned range merges with its
/// free neighbours. The same requests in the same order give the same offsets.
/// Cost:    linear in the number of ranges
class PieceList {
  public:
    explicit PieceList(std::size_t bytes) : pieces_{{0, bytes, false}} {}

    /// Allocates `bytes` > 0 and returns their offset, or nothing where no free range is large enough.
    std::optional<std::size_t> take(std::size_t bytes) {
        const auto found = std::find_if(pieces_.begin(), pieces_.end(),
                                        [&](const Piece& piece) { return !piece.used && piece.bytes >= bytes; });
        if (found == pieces_.end()) { return std::nullopt; }
        const std::size_t offset = found->offset;
        const Piece rest{offset + bytes, found->bytes - bytes, false};
        const auto at = found - pieces_.begin();
        if (rest.bytes > 0) { pieces_.insert(found + 1, rest); }
        pieces_[static_cast<std::size_t>(at)] = {offset, bytes, true};
        return offset;
    }

    /// Frees a range and returns its size. @pre `offset` came from `take` and was not freed since
    std::size_t give_back(std::size_t offset) noexcept {
        const auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), offset,
                                            [](const Piece& p, std::size_t value) { return p.offset < value; });
        const std::size_t bytes = piece->bytes;
        piece->used = false;
        auto first = piece;
        if (piece != pieces_.begin() && !(piece - 1)->used) { --first; }
        auto last = piece + 1;
        if (last != pieces_.end() && !last->used) { ++last; }
        for (auto next = first + 1; next != last; ++next) { first->bytes += next->bytes; }
        pieces_.erase(first + 1, last);
        return bytes;
    }

  private:
    struct Piece {
        std::size_t offset;
        std::size_t bytes;
        bool used;
    };

    std::vector<Piece> pieces_;  // by offset, without gaps; free ranges are not adjacent
};

}  // namespace shardkit::detail
