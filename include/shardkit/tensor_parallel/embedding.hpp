// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/rank/engine.hpp>
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

/// Computes one column of embed_backward.
template <class Token, class T, class A>
struct EmbedColumnBackward {
    const Token* tokens;
    std::size_t count;
    tp::VocabularyPart part;
    std::size_t width;
    const A* d_output;
    T* d_weight;

    constexpr void operator()(std::size_t column) const {
        for (std::size_t t = 0; t < count; ++t) {
            const auto token = static_cast<std::size_t>(tokens[t]);
            if (!part.contains(token)) { continue; }
            T& sum = d_weight[(token - part.first) * width + column];
            sum = static_cast<T>(static_cast<A>(sum) + d_output[t * width + column]);
        }
    }
};

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
    static_assert(shardkit::detail::IndexRules<shardkit::detail::KernelsOn<Kernels, Stream>>::are_stated);
    const std::size_t width = part.size == 0 ? 0 : weight.size() / part.size;
    if (weight.size() != part.size * width || output.size() != tokens.size() * width) {
        throw_invalid_argument(where, "tp::embed: ", weight.size(), " weights of ", part.size, " rows and ",
                               output.size(), " outputs of ", tokens.size(), " tokens, expected rows of one width");
    }
    Kernels::for_each_index(
        stream, output.size(),
        detail::EmbedElement<Token, T, A>{tokens.data(), part, width, weight.data(), output.data()});
}

/// Adds the gradients of this rank's rows. The gradient at the output must be that of all tokens (from
/// gather_tokens). Tokens are added in order, so that the bits are the same every time.
/// Shapes:  as embed; d_output [n, width], d_weight [part.size, width]
/// Order:   stream-ordered; local work, one pass over d_output.
/// @throws  std::invalid_argument when the sizes disagree
template <class Kernels, class Stream, class Token, class A, class T>
void embed_backward(const Stream& stream, std::span<const Token> tokens, const VocabularyPart& part,
                    std::span<const A> d_output, std::span<T> d_weight,
                    SourceLocation where = SourceLocation::current()) {
    static_assert(shardkit::detail::IndexRules<shardkit::detail::KernelsOn<Kernels, Stream>>::are_stated);
    const std::size_t width = part.size == 0 ? 0 : d_weight.size() / part.size;
    if (d_weight.size() != part.size * width || d_output.size() != tokens.size() * width) {
        throw_invalid_argument(where, "tp::embed_backward: ", d_weight.size(), " gradients of ", part.size,
                               " rows and ", d_output.size(), " of ", tokens.size(),
                               " tokens, expected rows of one width");
    }
    Kernels::for_each_index(stream, width,
                            detail::EmbedColumnBackward<Token, T, A>{tokens.data(), tokens.size(), part, width,
                                                                     d_output.data(), d_weight.data()});
}

}  // namespace shardkit::tp
