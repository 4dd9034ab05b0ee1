// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

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
