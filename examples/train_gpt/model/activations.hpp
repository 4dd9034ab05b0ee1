// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arena.hpp"
#include "config.hpp"
#include "convert.hpp"

namespace train_gpt {

/// What one block's forward pass keeps for its backward pass.
template <class A>
struct BlockActivations {
    A* norm1_mean;       // [tokens]
    A* norm1_deviation;  // [tokens], inverse
    A* norm1;            // [tokens, C]
    A* qkv;              // [tokens, 3 C]
    A* probabilities;    // [batch, heads, sequence, sequence]
    A* attention;        // [tokens, C]
    A* middle;           // [tokens, C], the residual stream between attention and MLP
    A* norm2_mean;       // [tokens]
    A* norm2_deviation;  // [tokens], inverse
    A* norm2;            // [tokens, C]
    A* up;               // [tokens, 4 C]
    A* gelu;             // [tokens, 4 C]
};

/// Work space that every layer shares.
template <class A>
struct Scratch {
    A* d_residual;  // [tokens, C], the gradient that travels down the residual stream
    A* d_width;     // [tokens, C]
    A* d_packed;    // [tokens, 3 C]
    A* d_up;        // [tokens, 4 C]
    A* d_scores;    // [sequence, sequence]
    A* sums;        // [4 C]: column sums
    A* converted;   // the largest matrix, where parameters need conversion; else empty
};

/// What the head keeps.
template <class A>
struct HeadActivations {
    A* norm_mean;       // [tokens]
    A* norm_deviation;  // [tokens], inverse
    A* norm;            // [tokens, C]
    A* logits;          // [tokens, 256]; the backward pass turns them into their gradient in place
};

template <class A>
BlockActivations<A> take_block(Arena& arena, const ModelConfig& config, BatchShape capacity) {
    const std::size_t tokens = capacity.tokens();
    const std::size_t wide = tokens * config.width;
    // Braced initialisers are evaluated in order, so the arena's order is the struct's.
    return {arena.take<A>(tokens),
            arena.take<A>(tokens),
            arena.take<A>(wide),
            arena.take<A>(3 * wide),
            arena.take<A>(tokens * config.heads * capacity.sequence),
            arena.take<A>(wide),
            arena.take<A>(wide),
            arena.take<A>(tokens),
            arena.take<A>(tokens),
            arena.take<A>(wide),
            arena.take<A>(4 * wide),
            arena.take<A>(4 * wide)};
}

/// Elements of the largest matrix, which the conversion scratch has to hold; 0 where T is computed with as it is.
template <class T>
std::size_t converted_elements(const ModelConfig& config) {
    if (!needs_conversion<T>) { return 0; }
    return config.width * std::max({4 * config.width, vocabulary, config.sequence});
}

template <class T, class A = Arithmetic<T>>
Scratch<A> take_scratch(Arena& arena, const ModelConfig& config, BatchShape capacity) {
    const std::size_t wide = capacity.tokens() * config.width;
    return {arena.take<A>(wide),
            arena.take<A>(wide),
            arena.take<A>(3 * wide),
            arena.take<A>(4 * wide),
            arena.take<A>(capacity.sequence * capacity.sequence),
            arena.take<A>(4 * config.width),
            arena.take<A>(converted_elements<T>(config))};
}

template <class A>
HeadActivations<A> take_head(Arena& arena, const ModelConfig& config, BatchShape capacity) {
    const std::size_t tokens = capacity.tokens();
    return {arena.take<A>(tokens), arena.take<A>(tokens), arena.take<A>(tokens * config.width),
            arena.take<A>(tokens * vocabulary)};
}

}  // namespace train_gpt
