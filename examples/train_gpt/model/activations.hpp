// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "arena.hpp"
#include "config.hpp"
#include "convert.hpp"
#include "layer_norm.hpp"
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
    S* keys_values;                // [key | value][batch, heads, sequence, head_width], of this rank
    Arithmetic<S>* d_keys_values;  // their gradients
    S* scores;                     // [heads at once, sequence, sequence]
    S* d_scores;                   // likewise
};

inline AttentionShape attention_shape(const ModelConfig& config, const Split& split, BatchShape batch) {
    return {batch, split.heads(config), config.head_width()};
}

/// What one block's forward pass keeps for its backward pass. `outer` are the tokens of norms and residuals, `tokens`
/// those of the layers between; c is the rank's part of the width C.
template <class S>
struct BlockActivations {
    Normed<S> norm1;             // [outer, C]
    S* qkv;                      // [tokens, 3 c]
    Arithmetic<S>* log_sum_exp;  // [batch, heads / tp, sequence]
    S* attention;                // [tokens, c]
    S* middle;                   // [outer, C], the residual stream between attention and MLP
    Normed<S> norm2;             // [outer, C]
    S* up;                       // [tokens, 4 c]
    S* gelu;                     // [tokens, 4 c]
};

/// Work space that every layer shares.
template <class S>
struct Scratch {
    S* d_residual;             // [outer, C], the gradient that travels down the residual stream
    S* d_width;                // [outer, C]
    S* gathered;               // [tokens, C] where norms hold a part of the tokens; else empty
    Arithmetic<S>* partial;    // [tokens, C] where sums over tp cannot be made in place; else empty
    Arithmetic<S>* summed;     // [outer, C] of them, where they are rounded to S; else empty
    S* d_heads;                // [tokens, c]
    S* d_packed;               // [tokens, 3 c]
    S* d_up;                   // [tokens, 4 c]
    Arithmetic<S>* sums;       // [column parts, 4 C]: column sums
    Arithmetic<S>* converted;  // the largest matrix, where parameters need conversion; else empty
    AttentionScratch<S> attention;
};

/// What the head keeps.
template <class S>
struct HeadActivations {
    Normed<S> norm;          // [outer, C]
    S* logits;               // [tokens, columns]; the backward pass turns them into their gradient in place
    Arithmetic<S>* largest;  // [tokens]
    Arithmetic<S>* sums;     // [2 * tokens]
};

template <class S, class A = Arithmetic<S>>
BlockActivations<S> take_block(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t outer = split.outer_tokens(capacity);
    const std::size_t part = capacity.tokens() * split.width(config);
    // Braced initialisers are evaluated in order, so the arena's order is the struct's.
    return {Normed<S>::take(arena, outer, config.width),
            arena.take<S>(3 * part),
            arena.take<A>(attention_shape(config, split, capacity).rows()),
            arena.take<S>(part),
            arena.take<S>(outer * config.width),
            Normed<S>::take(arena, outer, config.width),
            arena.take<S>(4 * part),
            arena.take<S>(4 * part)};
}

/// Elements that the conversion scratch has to hold: the largest matrix, or where products read T as it is stored the
/// larger embedding, whose gradient is summed there; 0 where T is computed with as it is.
template <class T, class S>
std::size_t converted_elements(const ModelConfig& config, const Split& split) {
    if (!needs_conversion<T>) { return 0; }
    const std::size_t matrix = std::same_as<T, S> ? 0 : 4 * split.width(config);
    return config.width * std::max({matrix, split.rows_of_vocabulary(config), config.sequence});
}

template <class S, class Place>
AttentionScratch<S> take_attention(Arena& arena, const AttentionShape& shape, std::size_t chunk) {
    const std::size_t scores = Place::heads_at_once(shape.heads) * chunk * chunk;
    return {arena.take<S>(shape.keys_values()), arena.take<Arithmetic<S>>(shape.keys_values()), arena.take<S>(scores),
            arena.take<S>(scores)};
}

template <class T, class Place, class S = typename Place::template Storage<T>, class A = Arithmetic<S>>
Scratch<S> take_scratch(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t wide = split.outer_tokens(capacity) * config.width;
    const std::size_t all = split.splits_tokens() ? capacity.tokens() * config.width : 0;
    const std::size_t part = capacity.tokens() * split.width(config);
    const bool rounded = split.tp > 1 && !std::same_as<S, A>;
    const std::size_t chunk = split.cp == 1 ? capacity.sequence : capacity.sequence / 2;
    return {arena.take<S>(wide),
            arena.take<S>(wide),
            arena.take<S>(all),
            arena.take<A>(rounded ? capacity.tokens() * config.width : all),
            arena.take<A>(rounded && split.splits_tokens() ? wide : 0),
            arena.take<S>(part),
            arena.take<S>(3 * part),
            arena.take<S>(4 * part),
            arena.take<A>(Place::column_parts * 4 * config.width),
            arena.take<A>(converted_elements<T, S>(config, split)),
            take_attention<S, Place>(arena, attention_shape(config, split, capacity), chunk)};
}

template <class S, class A = Arithmetic<S>>
HeadActivations<S> take_head(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t tokens = capacity.tokens();
    return {Normed<S>::take(arena, split.outer_tokens(capacity), config.width),
            arena.take<S>(tokens * split.rows_of_vocabulary(config)), arena.take<A>(tokens),
            arena.take<A>(2 * tokens)};
}

}  // namespace train_gpt
