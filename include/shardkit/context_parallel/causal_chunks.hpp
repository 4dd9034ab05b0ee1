// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/core/error.hpp>

namespace shardkit::cp {

/// The tokens of a sequence that one rank of cp holds: of 2 * cp chunks, numbers i and 2 * cp - 1 - i. A token
/// attends to all before it, so an early and a late chunk together are the same work for every rank.
/// @post over all ranks, position is a one-to-one map onto the sequence
class CausalChunks {
  public:
    /// What rank `index` of `size` holds of `sequence` tokens.
    /// @throws std::invalid_argument when 2 * size does not divide the sequence
    static CausalChunks of(std::size_t sequence, std::size_t size, std::size_t index,
                           SourceLocation where = SourceLocation::current()) {
        if (sequence % (2 * size) != 0) {
            throw_invalid_argument(where, "CausalChunks: a sequence of ", sequence, " tokens over cp = ", size,
                                   ", expected a multiple of ", 2 * size);
        }
        return {sequence / (2 * size), {index, 2 * size - 1 - index}};
    }

    /// Tokens of a chunk; a rank holds two.
    constexpr std::size_t chunk() const noexcept { return chunk_; }
    constexpr std::size_t tokens() const noexcept { return 2 * chunk_; }
    /// In the sequence, of the rank's token i.
    constexpr std::size_t position(std::size_t i) const noexcept {
        return i < chunk_ ? numbers_[0] * chunk_ + i : numbers_[1] * chunk_ + i - chunk_;
    }

  private:
    constexpr CausalChunks(std::size_t chunk, std::array<std::size_t, 2> numbers) noexcept
        : chunk_(chunk), numbers_(numbers) {}

    std::size_t chunk_;
    std::array<std::size_t, 2> numbers_;
};

}  // namespace shardkit::cp
