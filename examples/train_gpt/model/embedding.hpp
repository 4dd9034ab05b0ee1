// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "block_weights.hpp"
#include "config.hpp"
#include "convert.hpp"

namespace train_gpt {

/// output[t] = wte[tokens[t]] + wpe[position of t].
/// Shapes: tokens [batch, sequence], output [tokens, width].
template <class T, class A = Arithmetic<T>>
void embedding_forward(const ModelConfig& config, BatchShape batch, const EmbeddingWeights<const T*>& w,
                       const std::uint8_t* tokens, A* output) {
    const std::size_t c = config.width;
    for (std::size_t t = 0; t < batch.tokens(); ++t) {
        const T* token = w.wte + tokens[t] * c;
        const T* position = w.wpe + t % batch.sequence * c;
        for (std::size_t i = 0; i < c; ++i) {
            output[t * c + i] = static_cast<A>(token[i]) + static_cast<A>(position[i]);
        }
    }
}

/// Adds each row of d_output to the gradient rows that it was read from: `row_of(t)` names the row for token t.
/// Parameters that need conversion are summed in `scratch` [rows, width] and rounded once.
template <class T, class A, class RowOf>
void scatter_rows(std::size_t tokens, std::size_t rows, std::size_t width, RowOf row_of, const A* d_output,
                  T* gradient, [[maybe_unused]] A* scratch) {
    const auto scatter = [&](A* sums) {
        for (std::size_t t = 0; t < tokens; ++t) {
            A* sum = sums + row_of(t) * width;
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

/// Adds to both embeddings' gradients, given the gradient at the embedding's output.
template <class T, class A = Arithmetic<T>>
void embedding_backward(const ModelConfig& config, BatchShape batch, const std::uint8_t* tokens, const A* d_output,
                        const EmbeddingWeights<T*>& d, A* scratch) {
    const auto token_row = [&](std::size_t t) { return std::size_t{tokens[t]}; };
    const auto position_row = [&](std::size_t t) { return t % batch.sequence; };
    scatter_rows(batch.tokens(), vocabulary, config.width, token_row, d_output, d.wte, scratch);
    scatter_rows(batch.tokens(), batch.sequence, config.width, position_row, d_output, d.wpe, scratch);
}

}  // namespace train_gpt
