// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include <shardkit/context_parallel/attention_shape.hpp>
#include <shardkit/context_parallel/causal_chunks.hpp>
#include <shardkit/core/finite.hpp>

namespace shardkit::detail {

/// Which keys of a block a query may see: those at its position or before.
struct CausalBlock {
    cp::AttentionShape shape;
    cp::CausalChunks queries;
    cp::CausalChunks keys;

    constexpr bool sees(std::size_t query, std::size_t key) const noexcept {
        return keys.position(key) <= queries.position(query);
    }
};

template <class A>
constexpr A dot(const A* a, const A* b, std::size_t n) noexcept {
    A sum = 0;
    for (std::size_t i = 0; i < n; ++i) { sum += a[i] * b[i]; }
    return sum;
}

/// Attends with one query over one block: merges the softmax over the keys that it sees with the result of earlier
/// blocks, by their log-sum-exp. Before the first block output must be 0 and log_sum_exp minus infinity; after the
/// last they are those of attention over all blocks.
/// Source: Liu et al., Ring Attention, arXiv 2310.01889; Dao, FlashAttention-2, arXiv 2307.08691, section 3.1
template <class A>
struct AttendRow {
    CausalBlock causal;
    const A* queries;
    const A* keys_values;
    A scale;
    A* output;
    A* log_sum_exp;

    constexpr void operator()(std::size_t row) const {
        const cp::AttentionShape& shape = causal.shape;
        const std::size_t d = shape.head_width;
        const std::size_t query = row % shape.tokens;
        const std::size_t first = row - query;  // first token's row of this sequence and head
        const A* const values = keys_values + shape.queries() + first * d;
        A largest = -std::numeric_limits<A>::infinity();
        for (std::size_t j = 0; j < shape.tokens; ++j) {
            if (!causal.sees(query, j)) { continue; }
            const A found = score(row, first + j);
            largest = largest < found ? found : largest;
        }
        if (!shardkit::detail::is_finite(largest)) { return; }
        A sum = 0;
        for (std::size_t j = 0; j < shape.tokens; ++j) {
            if (causal.sees(query, j)) { sum += std::exp(score(row, first + j) - largest); }
        }
        const A block = largest + std::log(sum);
        const A before = log_sum_exp[row];
        const A highest = before < block ? block : before;
        const A together = highest + std::log(std::exp(before - highest) + std::exp(block - highest));
        const A kept = std::exp(before - together);
        for (std::size_t c = 0; c < d; ++c) { output[row * d + c] *= kept; }
        for (std::size_t j = 0; j < shape.tokens; ++j) {
            if (!causal.sees(query, j)) { continue; }
            const A weight = std::exp(score(row, first + j) - together);
            for (std::size_t c = 0; c < d; ++c) { output[row * d + c] += weight * values[j * d + c]; }
        }
        log_sum_exp[row] = together;
    }

  private:
    constexpr A score(std::size_t query, std::size_t key) const noexcept {
        const std::size_t d = causal.shape.head_width;
        return scale * dot(queries + query * d, keys_values + key * d, d);
    }
};

/// Computes D = the sum of d_output * output over a row.
template <class A>
struct OutputDot {
    const A* output;
    const A* d_output;
    std::size_t head_width;
    A* dots;

    constexpr void operator()(std::size_t row) const {
        dots[row] = dot(output + row * head_width, d_output + row * head_width, head_width);
    }
};

/// What a backward pass over one block reads. The probabilities are recomputed from the final log-sum-exp.
template <class A>
struct BlockBackward {
    CausalBlock causal;
    const A* queries;
    const A* keys_values;
    A scale;
    const A* d_output;
    const A* log_sum_exp;
    const A* dots;

    struct Pair {
        A probability;
        A d_score;
    };
    /// Returns the values for a query's row and a key's row, both counted over all sequences and heads.
    constexpr Pair pair(std::size_t query, std::size_t key) const {
        const std::size_t d = causal.shape.head_width;
        const A* const k = keys_values + key * d;
        const A probability = std::exp(scale * dot(queries + query * d, k, d) - log_sum_exp[query]);
        const A d_probability = dot(d_output + query * d, k + causal.shape.queries(), d);
        return {probability, scale * probability * (d_probability - dots[query])};
    }
};

/// Adds a block's contribution to the gradient of one query.
template <class A>
struct QueryGradientRow {
    BlockBackward<A> block;
    A* d_queries;

    constexpr void operator()(std::size_t row) const {
        const cp::AttentionShape& shape = block.causal.shape;
        const std::size_t d = shape.head_width;
        const std::size_t query = row % shape.tokens;
        for (std::size_t j = 0; j < shape.tokens; ++j) {
            if (!block.causal.sees(query, j)) { continue; }
            const std::size_t key = row - query + j;
            const A d_score = block.pair(row, key).d_score;
            for (std::size_t c = 0; c < d; ++c) {
                d_queries[row * d + c] += d_score * block.keys_values[key * d + c];
            }
        }
    }
};

/// Adds this rank's contribution to the gradients of one key and its value.
template <class A>
struct KeyValueGradientRow {
    BlockBackward<A> block;
    A* d_keys_values;

    constexpr void operator()(std::size_t row) const {
        const cp::AttentionShape& shape = block.causal.shape;
        const std::size_t d = shape.head_width;
        const std::size_t key = row % shape.tokens;
        A* const dk = d_keys_values + row * d;
        A* const dv = dk + shape.queries();
        for (std::size_t i = 0; i < shape.tokens; ++i) {
            if (!block.causal.sees(i, key)) { continue; }
            const std::size_t query = row - key + i;
            const auto [probability, d_score] = block.pair(query, row);
            for (std::size_t c = 0; c < d; ++c) {
                dk[c] += d_score * block.queries[query * d + c];
                dv[c] += probability * block.d_output[query * d + c];
            }
        }
    }
};

}  // namespace shardkit::detail
