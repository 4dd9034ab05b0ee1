// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/element.hpp>

#include "config.hpp"
#include "split.hpp"

namespace train_gpt {

/// Extents of what one rank does of causal attention over packed queries, keys and values.
/// A token's 3 * width values lie head by head: [head][query | key | value][head_width], not as contiguous
/// thirds, so that a split of the heads over tensor-parallel ranks is one contiguous piece of the rows of the QKV
/// weight. Keys and values travel between the ranks of cp as [key | value][batch, heads, sequence, head_width].
struct AttentionShape {
    BatchShape batch;  // of this rank
    std::size_t heads;
    std::size_t head_width;

    constexpr std::size_t width() const noexcept { return heads * head_width; }
    constexpr std::size_t packed() const noexcept { return 3 * width(); }
    constexpr std::size_t rows() const noexcept { return batch.tokens() * heads; }
    constexpr std::size_t keys_values() const noexcept { return 2 * rows() * head_width; }
    /// Offset of the queries of (sequence b, head h); keys and values follow at head_width and 2 * head_width.
    constexpr std::size_t packed_offset(std::size_t b, std::size_t h) const noexcept {
        return b * batch.sequence * packed() + h * 3 * head_width;
    }
    constexpr std::size_t output_offset(std::size_t b, std::size_t h) const noexcept {
        return b * batch.sequence * width() + h * head_width;
    }
    constexpr std::size_t row_offset(std::size_t b, std::size_t h) const noexcept {
        return (b * heads + h) * batch.sequence;
    }
    /// Of the keys; the values lie half a block further.
    constexpr std::size_t key_offset(std::size_t b, std::size_t h) const noexcept {
        return row_offset(b, h) * head_width;
    }
};

/// Work space of attention.
template <class S>
struct AttentionScratch {
    S* keys_values;                          // [key | value][batch, heads, sequence, head_width], of this rank
    shardkit::Arithmetic<S>* d_keys_values;  // their gradients
    S* scores;                               // [heads at once, sequence, sequence]
    S* d_scores;                             // likewise
};

inline AttentionShape attention_shape(const ModelConfig& config, const Split& split, BatchShape batch) {
    return {batch, split.heads(config), config.head_width()};
}

}  // namespace train_gpt
