// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "block_weights.hpp"
#include "convert.hpp"
#include "matrix.hpp"
#include "rank_pass.hpp"

namespace train_gpt {

/// The position in its sequence of each of a rank's tokens of norms and residuals.
struct Positions {
    shardkit::cp::CausalChunks chunks;
    std::size_t length;
    std::size_t first;

    constexpr std::size_t operator()(std::size_t t) const { return chunks.position((first + t) % length); }
};
/// The row of the token embedding of each of a rank's tokens; of tokens before the first that a rank has, the
/// difference wraps around and is large.
struct TokenRows {
    const Token* tokens;
    std::size_t first;

    constexpr std::size_t operator()(std::size_t t) const { return tokens[t] - first; }
};

template <class Rank>
Positions positions(const Rank& pass) {
    return {pass.chunks(pass.split.cp_index), pass.batch.sequence, pass.split.first_outer_token(pass.batch)};
}

/// As rows: output[t] = table[row_of(t)], or 0 where this rank does not have that row; with Into::add that is added
/// to it.
template <class RowOf, class T, class S>
struct TakeRow {
    using A = Arithmetic<S>;

    RowOf row_of;
    std::size_t rows;
    std::size_t width;
    const T* table;
    S* output;
    Into into;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        const std::size_t from = row_of(t);
        S* const out = output + t * width;
        row.each(width, [&](std::size_t i) {
            const A value = from < rows ? static_cast<A>(table[from * width + i]) : A{0};
            out[i] = static_cast<S>(into == Into::add ? static_cast<A>(out[i]) + value : value);
        });
    }
};

/// output[t] = wte[tokens[t]] + wpe[position of t]; each tp rank has the rows of a part of the tokens' values.
/// Shapes: tokens [batch, sequence], output [outer, width].
template <class T, class Rank, class S>
void embedding_forward(const Rank& pass, const EmbeddingWeights<const T*>& w, const Token* tokens, S* output) {
    const std::size_t c = pass.config.width;
    const TokenRows row_of{tokens, pass.split.first_of_vocabulary(pass.config)};
    pass.sum(output, [&](auto* partial) {
        using Sum = std::remove_pointer_t<decltype(partial)>;
        pass.place.rows(pass.tokens(), TakeRow<TokenRows, T, Sum>{row_of, pass.split.rows_of_vocabulary(pass.config),
                                                                  c, w.wte, partial, Into::overwrite});
    });
    pass.place.rows(pass.outer(),
                    TakeRow<Positions, T, S>{positions(pass), pass.config.sequence, c, w.wpe, output, Into::add});
}

/// As columns: adds each token's row of d_output to the row that it was read from, which row_of(t) names, in the
/// order of the tokens; rows beyond `rows` are another rank's. Each part has every so-manyth row.
template <class S, class RowOf>
struct ScatterRows {
    using A = Arithmetic<S>;

    static constexpr std::size_t columns_at_once = std::numeric_limits<std::size_t>::max();

    std::size_t tokens;
    std::size_t rows;
    std::size_t width;
    RowOf row_of;
    const S* d_output;
    std::size_t parts;
    A* sums;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        for (std::size_t t = 0; t < tokens; ++t) {
            const std::size_t row = row_of(t);
            if (row >= rows || row % parts != part) { continue; }
            A* const sum = sums + row * width + columns.first;
            const S* const addend = d_output + t * width + columns.first;
            for (std::size_t i = 0; i < columns.count; ++i) { sum[i] += static_cast<A>(addend[i]); }
        }
    }
};

/// Adds each row of d_output to the gradient row that it was read from. Parameters that need conversion are summed in
/// `scratch` [rows, width] and rounded once.
template <class T, class S, class RowOf, class Place, class A = Arithmetic<T>>
void scatter_rows(std::size_t tokens, std::size_t rows, std::size_t width, RowOf row_of, const S* d_output,
                  T* gradient, [[maybe_unused]] A* scratch, const Place& place) {
    const auto scatter = [&](A* sums) {
        place.columns(width, ScatterRows<S, RowOf>{tokens, rows, width, row_of, d_output, Place::column_parts, sums});
    };
    if constexpr (needs_conversion<T>) {
        place.each(rows * width, Fill<A>{scratch, A{0}});
        scatter(scratch);
        add_rounded(gradient, scratch, rows * width, place);
    } else {
        scatter(gradient);
    }
}

/// Adds to both embeddings' gradients, given the gradient at the embedding's output in scratch.d_residual.
template <class T, class Rank>
void embedding_backward(const Rank& pass, const Token* tokens, const EmbeddingWeights<T*>& d) {
    const std::size_t c = pass.config.width;
    auto* const scratch = pass.scratch.converted;
    const auto* const d_output = pass.scratch.d_residual;
    if (d.wpe != nullptr) {
        scatter_rows(pass.outer(), pass.config.sequence, c, positions(pass), d_output, d.wpe, scratch, pass.place);
    }
    const TokenRows row_of{tokens, pass.split.first_of_vocabulary(pass.config)};
    scatter_rows(pass.tokens(), pass.split.rows_of_vocabulary(pass.config), c, row_of, pass.gather(d_output), d.wte,
                 scratch, pass.place);
}

}  // namespace train_gpt
