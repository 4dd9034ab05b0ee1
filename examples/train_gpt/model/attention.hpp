// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "config.hpp"
#include "exponential.hpp"
#include "lanes.hpp"
#include "matmul.hpp"

namespace train_gpt {

/// Extents of causal attention over packed queries, keys and values.
/// A token's 3 * width values lie head by head: [head][query | key | value][head_width], not as contiguous
/// thirds, so that a split of the heads over tensor-parallel ranks is one contiguous piece of the rows of the QKV
/// weight.
struct AttentionShape {
    BatchShape batch;
    std::size_t heads;
    std::size_t head_width;

    constexpr std::size_t width() const noexcept { return heads * head_width; }
    constexpr std::size_t packed() const noexcept { return 3 * width(); }
    /// Offset of the queries of (sequence b, head h); keys and values follow at head_width and 2 * head_width.
    constexpr std::size_t packed_offset(std::size_t b, std::size_t h) const noexcept {
        return b * batch.sequence * packed() + h * 3 * head_width;
    }
    constexpr std::size_t output_offset(std::size_t b, std::size_t h) const noexcept {
        return b * batch.sequence * width() + h * head_width;
    }
    constexpr std::size_t score_offset(std::size_t b, std::size_t h) const noexcept {
        return (b * heads + h) * batch.sequence * batch.sequence;
    }
};

/// Row i of the scores becomes softmax over columns 0..i; later columns become zero.
template <class A>
void causal_softmax(std::size_t sequence, A* scores) {
    for (std::size_t i = 0; i < sequence; ++i) {
        A* row = scores + i * sequence;
        const std::size_t seen = i + 1;
        const A highest = *std::max_element(row, row + seen);
        for (std::size_t j = 0; j < seen; ++j) { row[j] = exponential(row[j] - highest); }
        const A inverse = A(1) / lane_sum<A>(seen, [&](std::size_t j) { return row[j]; });
        for (std::size_t j = 0; j < seen; ++j) { row[j] *= inverse; }
        std::fill(row + seen, row + sequence, A{0});
    }
}

/// Shapes: qkv [tokens, 3 * width]; probabilities [batch, heads, sequence, sequence]; output [tokens, width].
template <class A>
void attention_forward(AttentionShape shape, const A* qkv, A* probabilities, A* output) {
    const std::size_t s = shape.batch.sequence;
    const std::size_t d = shape.head_width;
    const A scale = A(1) / std::sqrt(static_cast<A>(d));
    for (std::size_t b = 0; b < shape.batch.batch; ++b) {
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const A* base = qkv + shape.packed_offset(b, h);
            A* p = probabilities + shape.score_offset(b, h);
            const auto part = [&](std::size_t which) { return matrix(base + which * d, s, d, shape.packed()); };
            matmul<A>(part(0), transposed(part(1)), matrix(p, s, s), Into::overwrite, scale);
            causal_softmax(s, p);
            matmul<A>(matrix<const A>(p, s, s), part(2),
                      matrix(output + shape.output_offset(b, h), s, d, shape.width()), Into::overwrite);
        }
    }
}

/// Overwrites d_qkv with the gradient at the packed input.
/// Shapes: as attention_forward; d_output [tokens, width], d_qkv [tokens, 3 * width], d_scores [sequence, sequence].
template <class A>
void attention_backward(AttentionShape shape, const A* qkv, const A* probabilities, const A* d_output, A* d_qkv,
                        A* d_scores) {
    const std::size_t s = shape.batch.sequence;
    const std::size_t d = shape.head_width;
    const A scale = A(1) / std::sqrt(static_cast<A>(d));
    for (std::size_t b = 0; b < shape.batch.batch; ++b) {
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const A* base = qkv + shape.packed_offset(b, h);
            A* d_base = d_qkv + shape.packed_offset(b, h);
            const A* p = probabilities + shape.score_offset(b, h);
            const auto part = [&](std::size_t which) { return matrix(base + which * d, s, d, shape.packed()); };
            const auto d_part = [&](std::size_t which) { return matrix(d_base + which * d, s, d, shape.packed()); };
            const auto upstream = matrix(d_output + shape.output_offset(b, h), s, d, shape.width());
            matmul<A>(transposed(matrix(p, s, s)), upstream, d_part(2), Into::overwrite);
            matmul<A>(upstream, transposed(part(2)), matrix(d_scores, s, s), Into::overwrite);
            for (std::size_t i = 0; i < s; ++i) {
                const A* row = p + i * s;
                A* d_row = d_scores + i * s;
                const A dot = lane_sum<A>(i + 1, [&](std::size_t j) { return row[j] * d_row[j]; });
                // Masked columns have probability zero, so their gradient becomes zero as well.
                for (std::size_t j = 0; j < s; ++j) { d_row[j] = row[j] * (d_row[j] - dot); }
            }
            matmul<A>(matrix<const A>(d_scores, s, s), part(1), d_part(0), Into::overwrite, scale);
            matmul<A>(transposed(matrix<const A>(d_scores, s, s)), part(0), d_part(1), Into::overwrite, scale);
        }
    }
}

}  // namespace train_gpt
