// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "config.hpp"
#include "exponential.hpp"
#include "lanes.hpp"
#include "links.hpp"
#include "matmul.hpp"
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
template <class A>
struct AttentionScratch {
    A* keys_values;    // [key | value][batch, heads, sequence, head_width], of this rank
    A* d_keys_values;  // their gradients
    A* scores;         // [sequence, sequence]
    A* d_scores;       // [sequence, sequence]
};

/// Row i of the scores becomes its part of the softmax over everything seen so far, and log_sum_exp that of all of
/// it. Returns the factor for what was summed with earlier parts.
template <class A>
A merge_softmax(std::size_t seen, A* row, A& log_sum_exp) {
    const A highest = lane_max(seen, [&](std::size_t j) { return row[j]; });
    for (std::size_t j = 0; j < seen; ++j) { row[j] = exponential(row[j] - highest); }
    const A part = highest + std::log(lane_sum<A>(seen, [&](std::size_t j) { return row[j]; }));
    const A before = log_sum_exp;
    const A most = before < part ? part : before;
    log_sum_exp = most + std::log(std::exp(before - most) + std::exp(part - most));
    const A factor = std::exp(highest - log_sum_exp);
    for (std::size_t j = 0; j < seen; ++j) { row[j] *= factor; }
    return std::exp(before - log_sum_exp);
}

/// One rank's causal attention. Each query sees the keys of all cp ranks at its position and before; products of
/// chunks that no query may see are not made. The probabilities of a block are made when it arrives, forward and
/// backward, and never kept.
/// Source: Dao et al., arXiv 2205.14135; Liu et al., arXiv 2310.01889
template <class A>
class CausalAttention {
  public:
    CausalAttention(const AttentionShape& shape, const Split& split, Links<A>& links,
                    const AttentionScratch<A>& scratch)
        : shape_(shape), split_(split), links_(links), scratch_(scratch), queries_(chunks(split.cp_index)) {}

    /// Shapes: qkv [tokens, 3 * width]; output [tokens, width]; log_sum_exp [batch, heads, sequence].
    void forward(const A* qkv, A* output, A* log_sum_exp) const {
        const CountsAttention counts;
        pack(qkv);
        std::fill_n(output, shape_.batch.tokens() * shape_.width(), A{0});
        std::fill_n(log_sum_exp, shape_.rows(), -std::numeric_limits<A>::infinity());
        const auto attend = [&](std::size_t source, const A* block, A*) {
            for_each_pair(source, [&](const Pair& pair) {
                const auto p = scores(scratch_.scores);
                matmul<A>(queries(qkv, pair), transposed(keys(block, pair)), p, Into::overwrite, scale());
                const auto out = outputs(output, pair);
                for (std::size_t i = 0; i < p.rows; ++i) {
                    A* row = p.data + i * p.stride;
                    const std::size_t seen = pair.seen(i, p.columns);
                    const A kept = merge_softmax(seen, row, log_sum_exp[pair.row + i]);
                    std::fill(row + seen, row + p.columns, A{0});
                    A* sum = out.data + i * out.stride;
                    for (std::size_t c = 0; c < out.columns; ++c) { sum[c] *= kept; }
                }
                matmul<A>(p, values(block, pair), out, Into::add);
            });
        };
        links_.each_block({scratch_.keys_values, shape_.keys_values()}, attend);
    }

    /// Overwrites d_qkv with the gradient at the packed input.
    /// Shapes: as forward; d_output [tokens, width], d_qkv [tokens, 3 * width].
    void backward(const A* qkv, const A* output, const A* log_sum_exp, const A* d_output, A* d_qkv) const {
        const CountsAttention counts;
        pack(qkv);
        std::fill_n(scratch_.d_keys_values, shape_.keys_values(), A{0});
        std::fill_n(d_qkv, shape_.batch.tokens() * shape_.packed(), A{0});
        const auto attend = [&](std::size_t source, const A* block, A* d_block) {
            for_each_pair(source, [&](const Pair& pair) {
                const auto p = scores(scratch_.scores);
                const auto d_p = scores(scratch_.d_scores);
                const auto out = outputs(output, pair);
                const auto upstream = outputs(d_output, pair);
                matmul<A>(queries(qkv, pair), transposed(keys(block, pair)), p, Into::overwrite, scale());
                matmul<A>(upstream, transposed(values(block, pair)), d_p, Into::overwrite);
                for (std::size_t i = 0; i < p.rows; ++i) {
                    const A* o = out.data + i * out.stride;
                    const A* d_o = upstream.data + i * upstream.stride;
                    const A dot = lane_sum<A>(out.columns, [&](std::size_t c) { return o[c] * d_o[c]; });
                    A* row = p.data + i * p.stride;
                    A* d_row = d_p.data + i * d_p.stride;
                    const std::size_t seen = pair.seen(i, p.columns);
                    const A total = log_sum_exp[pair.row + i];
                    for (std::size_t j = 0; j < seen; ++j) {
                        row[j] = exponential(row[j] - total);
                        d_row[j] = row[j] * (d_row[j] - dot);
                    }
                    std::fill(row + seen, row + p.columns, A{0});
                    std::fill(d_row + seen, d_row + p.columns, A{0});
                }
                matmul<A>(transposed<const A>(p), upstream, values(d_block, pair), Into::add);
                matmul<A>(d_p, keys(block, pair), queries(d_qkv, pair), Into::add, scale());
                matmul<A>(transposed<const A>(d_p), queries(qkv, pair), keys(d_block, pair), Into::add, scale());
            });
        };
        links_.each_block_with_gradients({scratch_.keys_values, shape_.keys_values()},
                                         {scratch_.d_keys_values, shape_.keys_values()}, attend);
        for_each_row([&](std::size_t packed, std::size_t key) {
            for (std::size_t which = 0; which < 2; ++which) {
                std::copy_n(scratch_.d_keys_values + which * half() + key, shape_.head_width,
                            d_qkv + packed + (1 + which) * shape_.head_width);
            }
        });
    }

  private:
    /// A chunk of queries and one of keys that they see, of one sequence and head.
    struct Pair {
        std::size_t query;   // offset of the first row in the packed values
        std::size_t output;  // in the outputs
        std::size_t row;     // in what is kept for each query
        std::size_t key;     // in a block
        bool diagonal;

        std::size_t seen(std::size_t i, std::size_t all) const noexcept { return diagonal ? i + 1 : all; }
    };

    shardkit::cp::CausalChunks chunks(std::size_t rank) const {
        return split_.chunks(shape_.batch.sequence * split_.cp, rank);
    }
    std::size_t half() const { return shape_.keys_values() / 2; }
    A scale() const { return A(1) / std::sqrt(static_cast<A>(shape_.head_width)); }

    template <class F>
    void for_each_pair(std::size_t source, F f) const {
        const auto keys = chunks(source);
        const std::size_t n = queries_.chunk();
        for (std::size_t b = 0; b < shape_.batch.batch; ++b) {
            for (std::size_t h = 0; h < shape_.heads; ++h) {
                for (std::size_t q = 0; q < queries_.count(); ++q) {
                    for (std::size_t k = 0; k < keys.count(); ++k) {
                        if (keys.number(k) > queries_.number(q)) { continue; }
                        f(Pair{shape_.packed_offset(b, h) + q * n * shape_.packed(),
                               shape_.output_offset(b, h) + q * n * shape_.width(), shape_.row_offset(b, h) + q * n,
                               shape_.key_offset(b, h) + k * n * shape_.head_width,
                               keys.number(k) == queries_.number(q)});
                    }
                }
            }
        }
    }
    /// f(offset in the packed values, offset in the keys) of every token and head.
    template <class F>
    void for_each_row(F f) const {
        for (std::size_t b = 0; b < shape_.batch.batch; ++b) {
            for (std::size_t h = 0; h < shape_.heads; ++h) {
                for (std::size_t i = 0; i < shape_.batch.sequence; ++i) {
                    f(shape_.packed_offset(b, h) + i * shape_.packed(),
                      shape_.key_offset(b, h) + i * shape_.head_width);
                }
            }
        }
    }
    void pack(const A* qkv) const {
        for_each_row([&](std::size_t packed, std::size_t key) {
            for (std::size_t which = 0; which < 2; ++which) {
                std::copy_n(qkv + packed + (1 + which) * shape_.head_width, shape_.head_width,
                            scratch_.keys_values + which * half() + key);
            }
        });
    }

    template <class P>
    Matrix<P> queries(P* packed, const Pair& pair) const {
        return matrix(packed + pair.query, queries_.chunk(), shape_.head_width, shape_.packed());
    }
    template <class P>
    Matrix<P> outputs(P* all, const Pair& pair) const {
        return matrix(all + pair.output, queries_.chunk(), shape_.head_width, shape_.width());
    }
    template <class P>
    Matrix<P> keys(P* block, const Pair& pair) const {
        return matrix(block + pair.key, queries_.chunk(), shape_.head_width);
    }
    template <class P>
    Matrix<P> values(P* block, const Pair& pair) const {
        return matrix(block + half() + pair.key, queries_.chunk(), shape_.head_width);
    }
    Matrix<A> scores(A* memory) const { return matrix(memory, queries_.chunk(), queries_.chunk()); }

    AttentionShape shape_;
    Split split_;
    Links<A>& links_;
    AttentionScratch<A> scratch_;
    shardkit::cp::CausalChunks queries_;
};

}  // namespace train_gpt
