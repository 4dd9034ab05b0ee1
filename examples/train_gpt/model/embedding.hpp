// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "block_weights.hpp"
#include "convert.hpp"
#include "rank_pass.hpp"

namespace train_gpt {

/// The position in its sequence of each of a rank's tokens of norms and residuals.
template <class A>
auto positions(const RankPass<A>& pass) {
    const auto chunks = pass.split.chunks(pass.batch.sequence * pass.split.cp);
    return [chunks, length = pass.batch.sequence, first = pass.split.first_outer_token(pass.batch)](std::size_t t) {
        return chunks.position((first + t) % length);
    };
}

/// output[t] = wte[tokens[t]] + wpe[position of t]; each tp rank has the rows of a part of the tokens' values.
/// Shapes: tokens [batch, sequence], output [outer, width].
template <class T, class A = Arithmetic<T>>
void embedding_forward(const RankPass<A>& pass, const EmbeddingWeights<const T*>& w, const std::uint8_t* tokens,
                       A* output) {
    const std::size_t c = pass.config.width;
    const std::size_t first = pass.split.first_of_vocabulary();
    pass.sum(output, [&](A* partial) {
        for (std::size_t t = 0; t < pass.tokens(); ++t) {
            A* const row = partial + t * c;
            // Of tokens before the first, the difference wraps around and is large.
            if (const std::size_t held = tokens[t] - first; held < pass.split.rows_of_vocabulary()) {
                for (std::size_t i = 0; i < c; ++i) { row[i] = static_cast<A>(w.wte[held * c + i]); }
            } else {
                std::fill_n(row, c, A{0});
            }
        }
    });
    const auto position_of = positions(pass);
    for (std::size_t t = 0; t < pass.outer(); ++t) {
        const T* position = w.wpe + position_of(t) * c;
        for (std::size_t i = 0; i < c; ++i) { output[t * c + i] += static_cast<A>(position[i]); }
    }
}

/// Adds each row of d_output to the gradient row that it was read from: `row_of(t)` names the row for token t; rows
/// beyond `rows` are another rank's. Parameters that need conversion are summed in `scratch` [rows, width] and
/// rounded once.
template <class T, class A, class RowOf>
void scatter_rows(std::size_t tokens, std::size_t rows, std::size_t width, RowOf row_of, const A* d_output,
                  T* gradient, [[maybe_unused]] A* scratch) {
    const auto scatter = [&](A* sums) {
        for (std::size_t t = 0; t < tokens; ++t) {
            const std::size_t row = row_of(t);
            if (row >= rows) { continue; }
            A* sum = sums + row * width;
            for (std::size_t i = 0; i < width; ++i) { sum[i] += d_output[t * width + i]; }
        }
    };
    if constexpr (needs_conversion<T>) {
        std::fill_n(scratch, rows * width, A{0});
        scatter(scratch);
        add_rounded(gradient, scratch, rows * width);
    } else {
        scatter(gradient);
    }
}

/// Adds to both embeddings' gradients, given the gradient at the embedding's output in scratch.d_residual.
template <class T, class A = Arithmetic<T>>
void embedding_backward(const RankPass<A>& pass, const std::uint8_t* tokens, const EmbeddingWeights<T*>& d) {
    const std::size_t c = pass.config.width;
    A* const scratch = pass.scratch.converted;
    const A* const d_output = pass.scratch.d_residual;
    if (d.wpe != nullptr) {
        scatter_rows(pass.outer(), pass.config.sequence, c, positions(pass), d_output, d.wpe, scratch);
    }
    const auto token_row = [&](std::size_t t) { return tokens[t] - pass.split.first_of_vocabulary(); };
    scatter_rows(pass.tokens(), pass.split.rows_of_vocabulary(), c, token_row, pass.gather(d_output), d.wte, scratch);
}

}  // namespace train_gpt
