// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit::cp {

/// The shape of one rank's part of attention. Queries, outputs and their gradients are [batch, heads, tokens,
/// head_width]; a block of keys and values is [2, batch, heads, tokens, head_width]; one number for each query is
/// [batch, heads, tokens].
struct AttentionShape {
    std::size_t batch = 1;
    std::size_t heads = 1;
    std::size_t tokens = 0;  ///< on this rank
    std::size_t head_width = 1;

    constexpr std::size_t rows() const noexcept { return batch * heads * tokens; }
    constexpr std::size_t queries() const noexcept { return rows() * head_width; }
    constexpr std::size_t block() const noexcept { return 2 * queries(); }
};

}  // namespace shardkit::cp

namespace shardkit::detail {

/// Checks that a block fits in an exchange.
/// @throws std::invalid_argument when the block is larger than those that the exchange was made for
inline void check_block(std::string_view exchange, std::size_t given, std::size_t most, SourceLocation where) {
    require_argument(given <= most, where, "cp::", exchange, ": a block of ", given, " elements, expected at most ",
                     most);
}

}  // namespace shardkit::detail
