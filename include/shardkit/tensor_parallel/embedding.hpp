// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/tensor_parallel/vocabulary_part.hpp>

namespace shardkit::detail {

/// Computes one element of embed.
template <class Token, class T, class A>
struct EmbedElement {
    const Token* tokens;
    tp::VocabularyPart part;
    std::size_t width;
    const T* weight;
    A* output;

    constexpr void operator()(std::size_t i) const {
        const auto token = static_cast<std::size_t>(tokens[i / width]);
        output[i] = part.contains(token) ? static_cast<A>(weight[(token - part.first) * width + i % width]) : A{0};
    }
};

/// Computes what one worker adds in embed_backward: of every `parts`-th row, a power of two, every `workers`-th
/// column. It walks over all tokens in order, so each sum is made in their order by one worker.
template <class Token, class T, class A>
struct EmbedRowsBackward {
    const Token* tokens;
    std::size_t count;
    tp::VocabularyPart part;
    std::size_t width;
    std::size_t parts;
    std::size_t workers;  ///< of a part, which have adjacent indices
    const A* d_output;
    T* d_weight;

    constexpr void operator()(std::size_t index) const {
        const std::size_t part_number = index / workers;
        for (std::size_t t = 0; t < count; ++t) {
            const auto token = static_cast<std::size_t>(tokens[t]);
            if (!part.contains(token)) { continue; }
            const std::size_t row = token - part.first;
            if ((row & (parts - 1)) != part_number) { continue; }
            const A* const from = d_output + t * width;
            T* const to = d_weight + row * width;
            for (std::size_t c = index % workers; c < width; c += workers) {
                to[c] = static_cast<T>(static_cast<A>(to[c]) + from[c]);
            }
        }
    }
};
/// The parts into which embed_backward divides the rows where several workers share a row: enough warps for a GPU, of
/// which each reads all tokens.
inline constexpr std::size_t most_embedding_parts = 4096;

}  // namespace shardkit::detail

namespace shardkit::tp {

/// Writes the contribution of this rank's rows of an embedding: rows for tokens of other ranks are zero, so that the
/// sum over tp, which sum_tokens makes, is the embedding. Weight and gradient are tp::Split<0>.
/// Shapes:  tokens [n]; weight [part.size, width]; output [n, width]
/// Order:   stream-ordered; local work.
/// @throws  std::invalid_argument when the sizes disagree
template <class Kernels, class Stream, class Token, class T, class A>
void embed(const Stream& stream, std::span<const Token> tokens, const VocabularyPart& part, std::span<const T> weight,
           std::span<A> output, SourceLocation where = SourceLocation::current()) {
    const std::size_t width = part.size == 0 ? 0 : weight.size() / part.size;
    require_argument(weight.size() == part.size * width && output.size() == tokens.size() * width, where,
                     "tp::embed: ", weight.size(), " weights of ", part.size, " rows and ", output.size(),
                     " outputs of ", tokens.size(), " tokens, expected rows of one width");
    Kernels::for_each_index(
        stream, output.size(),
        detail::EmbedElement<Token, T, A>{tokens.data(), part, width, weight.data(), output.data()});
}

/// Adds the gradients of this rank's rows. The gradient at the output must be that of all tokens (from
/// gather_tokens). A row's tokens are added one after the other, in their order, so that the bits are the same every
/// time, on every engine; rows are divided among at most 4,096 groups of Kernels::row_workers, without it one worker
/// adds all.
/// Shapes:  as embed; d_output [n, width], d_weight [part.size, width]
/// Order:   stream-ordered; local work.
/// Cost:    one pass over d_output; each group of workers reads all tokens, and those of one row wait for each other.
/// @throws  std::invalid_argument when the sizes disagree
template <class Kernels, class Stream, class Token, class A, class T>
void embed_backward(const Stream& stream, std::span<const Token> tokens, const VocabularyPart& part,
                    std::span<const A> d_output, std::span<T> d_weight,
                    SourceLocation where = SourceLocation::current()) {
    const std::size_t width = part.size == 0 ? 0 : d_weight.size() / part.size;
    require_argument(d_weight.size() == part.size * width && d_output.size() == tokens.size() * width, where,
                     "tp::embed_backward: ", d_weight.size(), " gradients of ", part.size, " rows and ",
                     d_output.size(), " of ", tokens.size(), " tokens, expected rows of one width");
    const std::size_t workers = shardkit::detail::row_workers<Kernels>(stream);
    const std::size_t parts = workers == 1 ? 1 : std::bit_floor(std::min(part.size, detail::most_embedding_parts));
    Kernels::for_each_index(stream, parts * workers,
                            detail::EmbedRowsBackward<Token, T, A>{tokens.data(), tokens.size(), part, width, parts,
                                                                   workers, d_output.data(), d_weight.data()});
}

}  // namespace shardkit::tp
