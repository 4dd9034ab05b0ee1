// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include <shardkit/context_parallel/causal_chunks.hpp>

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

inline AttentionShape attention_shape(const ModelConfig& config, const Split& split, BatchShape batch) {
    return {batch, split.heads(config), config.head_width()};
}

/// The extents of what one rank computes. `outer` are the tokens of norms and residuals, `tokens` those of the
/// layers between; c is the rank's part of the width C.
struct RankShape {
    ModelConfig config;
    Split split;
    BatchShape batch;  // of this rank

    constexpr std::size_t tokens() const noexcept { return batch.tokens(); }
    constexpr std::size_t outer() const noexcept { return split.outer_tokens(batch); }
    constexpr std::size_t all() const noexcept { return tokens() * config.width; }          // [tokens, C]
    constexpr std::size_t wide() const noexcept { return outer() * config.width; }          // [outer, C]
    constexpr std::size_t part() const noexcept { return tokens() * split.width(config); }  // [tokens, c]
    AttentionShape attention() const { return attention_shape(config, split, batch); }
    /// Which tokens of a sequence a rank of cp has.
    shardkit::cp::CausalChunks chunks(std::size_t rank) const {
        return split.chunks(batch.sequence * split.cp, rank);
    }
};

/// A Part<...>{arena, shape}, for passes of at most that shape; what comes next in the arena lies behind it.
template <class Part>
Part laid_out(Arena& arena, const RankShape& most) {
    const Part part{arena, most};
    arena = part.arena;
    return part;
}

/// What one block's forward pass keeps for its backward pass.
template <class S>
struct BlockActivations {
    Arena arena;
    RankShape of;

    Normed<S> norm1 = Normed<S>::take(arena, of.outer(), of.config.width);
    S* qkv = arena.take<S>(3 * of.part());
    Arithmetic<S>* log_sum_exp = arena.take<Arithmetic<S>>(of.attention().rows());  // [batch, heads / tp, sequence]
    S* attention = arena.take<S>(of.part());
    S* middle = arena.take<S>(of.wide());  // the residual stream between attention and MLP
    Normed<S> norm2 = Normed<S>::take(arena, of.outer(), of.config.width);
    S* up = arena.take<S>(4 * of.part());
    S* gelu = arena.take<S>(4 * of.part());
};

/// What the head keeps.
template <class S>
struct HeadActivations {
    Arena arena;
    RankShape of;

    Normed<S> norm = Normed<S>::take(arena, of.outer(), of.config.width);
    /// [tokens, columns]; the backward pass turns them into their gradient in place.
    S* logits = arena.take<S>(of.tokens() * of.split.rows_of_vocabulary(of.config));
    Arithmetic<S>* largest = arena.take<Arithmetic<S>>(of.tokens());
    Arithmetic<S>* sums = arena.take<Arithmetic<S>>(2 * of.tokens());
};

/// Work space that every layer shares.
template <class T, class Place>
struct Scratch {
    using S = typename Place::template Storage<T>;
    using A = Arithmetic<S>;

    Arena arena;
    RankShape of;
    bool splits = of.split.splits_tokens();  // norms hold a part of the tokens
    bool rounded = of.split.tp > 1 && !std::same_as<S, A>;
    std::size_t chunk = of.batch.sequence / (of.split.cp == 1 ? 1 : 2);
    std::size_t heads = Place::heads_at_once(of.attention().heads);

    S* d_residual = arena.take<S>(of.wide());            // the gradient that travels down the residual stream
    S* d_width = arena.take<S>(of.wide());               // likewise, of a layer
    S* gathered = arena.take<S>(splits ? of.all() : 0);  // from all ranks' parts
    A* partial = arena.take<A>(splits || rounded ? of.all() : 0);  // of sums over tp that are not made in place
    A* summed = arena.take<A>(splits && rounded ? of.wide() : 0);  // of them, before they are rounded
    S* d_heads = arena.take<S>(of.part());
    S* d_packed = arena.take<S>(3 * of.part());
    S* d_up = arena.take<S>(4 * of.part());
    A* sums = arena.take<A>(Place::column_parts * 4 * of.config.width);  // by columns
    /// The largest matrix, or where products read T as it is stored the larger embedding, whose gradient is summed
    /// there; empty where T is computed with as it is.
    A* converted =
        arena.take<A>(!needs_conversion<T>
                          ? 0
                          : of.config.width * std::max({std::same_as<T, S> ? 0 : 4 * of.split.width(of.config),
                                                        of.split.rows_of_vocabulary(of.config), of.config.sequence}));
    // Of attention: [key | value][batch, heads, sequence, head_width], of this rank, and their gradients.
    S* keys_values = arena.take<S>(of.attention().keys_values());
    A* d_keys_values = arena.take<A>(of.attention().keys_values());
    S* scores = arena.take<S>(heads * chunk * chunk);
    S* d_scores = arena.take<S>(heads * chunk * chunk);
};

}  // namespace train_gpt
