// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arena.hpp"
#include "attention_shape.hpp"
#include "config.hpp"
#include "convert.hpp"
#include "split.hpp"

namespace train_gpt {

/// What one block's forward pass keeps for its backward pass. `outer` are the tokens of norms and residuals, `tokens`
/// those of the layers between; c is the rank's part of the width C.
template <class A>
struct BlockActivations {
    A* norm1_mean;       // [outer]
    A* norm1_deviation;  // [outer], inverse
    A* norm1;            // [outer, C]
    A* qkv;              // [tokens, 3 c]
    A* log_sum_exp;      // [batch, heads / tp, sequence]
    A* attention;        // [tokens, c]
    A* middle;           // [outer, C], the residual stream between attention and MLP
    A* norm2_mean;       // [outer]
    A* norm2_deviation;  // [outer], inverse
    A* norm2;            // [outer, C]
    A* up;               // [tokens, 4 c]
    A* gelu;             // [tokens, 4 c]
};

/// Work space that every layer shares.
template <class A>
struct Scratch {
    A* d_residual;  // [outer, C], the gradient that travels down the residual stream
    A* d_width;     // [outer, C]
    A* gathered;    // [tokens, C] where norms hold a part of the tokens; else empty
    A* partial;     // [tokens, C] likewise
    A* d_heads;     // [tokens, c]
    A* d_packed;    // [tokens, 3 c]
    A* d_up;        // [tokens, 4 c]
    A* sums;        // [column parts, 4 C]: column sums
    A* converted;   // the largest matrix, where parameters need conversion; else empty
    AttentionScratch<A> attention;
};

/// What the head keeps.
template <class A>
struct HeadActivations {
    A* norm_mean;       // [outer]
    A* norm_deviation;  // [outer], inverse
    A* norm;            // [outer, C]
    A* logits;          // [tokens, 256 / tp]; the backward pass turns them into their gradient in place
    A* largest;         // [tokens]
    A* sums;            // [2 * tokens]
};

template <class A>
BlockActivations<A> take_block(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t outer = split.outer_tokens(capacity);
    const std::size_t wide = outer * config.width;
    const std::size_t part = capacity.tokens() * split.width(config);
    // Braced initialisers are evaluated in order, so the arena's order is the struct's.
    return {arena.take<A>(outer),
            arena.take<A>(outer),
            arena.take<A>(wide),
            arena.take<A>(3 * part),
            arena.take<A>(attention_shape(config, split, capacity).rows()),
            arena.take<A>(part),
            arena.take<A>(wide),
            arena.take<A>(outer),
            arena.take<A>(outer),
            arena.take<A>(wide),
            arena.take<A>(4 * part),
            arena.take<A>(4 * part)};
}

/// Elements of the largest matrix, which the conversion scratch has to hold; 0 where T is computed with as it is.
template <class T>
std::size_t converted_elements(const ModelConfig& config, const Split& split) {
    if (!needs_conversion<T>) { return 0; }
    return config.width * std::max({4 * split.width(config), split.rows_of_vocabulary(), config.sequence});
}

template <class A, class Place>
AttentionScratch<A> take_attention(Arena& arena, const AttentionShape& shape, std::size_t chunk) {
    const std::size_t scores = Place::heads_at_once(shape.heads) * chunk * chunk;
    return {arena.take<A>(shape.keys_values()), arena.take<A>(shape.keys_values()), arena.take<A>(scores),
            arena.take<A>(scores)};
}

template <class T, class Place, class A = Arithmetic<T>>
Scratch<A> take_scratch(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t wide = split.outer_tokens(capacity) * config.width;
    const std::size_t all = split.splits_tokens() ? capacity.tokens() * config.width : 0;
    const std::size_t part = capacity.tokens() * split.width(config);
    const std::size_t chunk = split.cp == 1 ? capacity.sequence : capacity.sequence / 2;
    return {arena.take<A>(wide),
            arena.take<A>(wide),
            arena.take<A>(all),
            arena.take<A>(all),
            arena.take<A>(part),
            arena.take<A>(3 * part),
            arena.take<A>(4 * part),
            arena.take<A>(Place::column_parts * 4 * config.width),
            arena.take<A>(converted_elements<T>(config, split)),
            take_attention<A, Place>(arena, attention_shape(config, split, capacity), chunk)};
}

template <class A>
HeadActivations<A> take_head(Arena& arena, const ModelConfig& config, const Split& split, BatchShape capacity) {
    const std::size_t outer = split.outer_tokens(capacity);
    const std::size_t tokens = capacity.tokens();
    return {arena.take<A>(outer),
            arena.take<A>(outer),
            arena.take<A>(outer * config.width),
            arena.take<A>(tokens * split.rows_of_vocabulary()),
            arena.take<A>(tokens),
            arena.take<A>(2 * tokens)};
}

}  // namespace train_gpt
