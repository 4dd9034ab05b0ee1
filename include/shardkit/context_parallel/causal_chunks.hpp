// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/core/error.hpp>

namespace shardkit::cp {

/// Which tokens of a sequence one rank of cp holds: of 2 * cp chunks, numbers i and 2 * cp - 1 - i. A token attends
/// to all tokens before it, so an early and a late chunk together give every rank the same work. A single rank holds
/// the sequence as one chunk.
/// @post over all ranks, position is a one-to-one map onto the sequence
class CausalChunks {
  public:
    /// Returns the chunks of rank `index` of `size`, for `sequence` tokens.
    /// @throws std::invalid_argument when size > 1 and 2 * size does not divide the sequence
    static CausalChunks of(std::size_t sequence, std::size_t size, std::size_t index,
                           SourceLocation where = SourceLocation::current()) {
        if (size == 1) { return {1, sequence, {0, 0}}; }
        require_argument(sequence % (2 * size) == 0, where, "CausalChunks: a sequence of ", sequence,
                         " tokens over cp = ", size, ", expected a multiple of ", 2 * size);
        return {2, sequence / (2 * size), {index, 2 * size - 1 - index}};
    }

    /// Returns the number of chunks on a rank.
    constexpr std::size_t count() const noexcept { return count_; }
    /// Returns the number of tokens in a chunk.
    constexpr std::size_t chunk() const noexcept { return chunk_; }
    constexpr std::size_t tokens() const noexcept { return count_ * chunk_; }
    /// Returns the index in the sequence of the rank's chunk c.
    constexpr std::size_t number(std::size_t c) const noexcept { return numbers_[c]; }
    /// Returns the position in the sequence of the rank's token i.
    constexpr std::size_t position(std::size_t i) const noexcept {
        return i < chunk_ ? numbers_[0] * chunk_ + i : numbers_[1] * chunk_ + i - chunk_;
    }

  private:
    constexpr CausalChunks(std::size_t count, std::size_t chunk, std::array<std::size_t, 2> numbers) noexcept
        : count_(count), chunk_(chunk), numbers_(numbers) {}

    std::size_t count_;
    std::size_t chunk_;
    std::array<std::size_t, 2> numbers_;
};

}  // namespace shardkit::cp
