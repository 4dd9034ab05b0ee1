// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "activations.hpp"
#include "block_weights.hpp"
#include "exponential.hpp"
#include "lanes.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"

namespace train_gpt {

/// A loss that can still be added over passes and ranks: divide once, by the tokens of all of them.
struct SummedLoss {
    double sum = 0;
    std::size_t tokens = 0;

    constexpr double mean() const noexcept { return sum / static_cast<double>(tokens); }
    constexpr SummedLoss& operator+=(const SummedLoss& other) noexcept {
        sum += other.sum;
        tokens += other.tokens;
        return *this;
    }
};

/// logits = norm(input) W^T. Shapes: input [tokens, width]; kept.logits [tokens, 256].
template <class T, class A = Arithmetic<T>>
void head_forward(const ModelConfig& config, BatchShape batch, const HeadWeights<const T*>& w, const A* input,
                  const HeadActivations<A>& kept, const Scratch<A>& scratch) {
    const std::size_t tokens = batch.tokens();
    layer_norm_forward(tokens, config.width, w.norm_weight, w.norm_bias, input, kept.norm, kept.norm_mean,
                       kept.norm_deviation);
    const A* matrix_values = in_arithmetic(w.logits, vocabulary * config.width, scratch.converted);
    matmul<A>(matrix<const A>(kept.norm, tokens, config.width),
              transposed(matrix(matrix_values, vocabulary, config.width)), matrix(kept.logits, tokens, vocabulary),
              Into::overwrite);
}

/// The cross-entropy of each token summed (one rounding per token, summed in double); logits become
/// scale * (softmax - onehot), the gradient of scale times that sum.
template <class A>
SummedLoss cross_entropy_in_place(std::size_t tokens, const std::uint8_t* targets, A scale, A* logits) {
    double sum = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        A* row = logits + t * vocabulary;
        const A highest = lane_max(vocabulary, [&](std::size_t v) { return row[v]; });
        const A target = row[targets[t]] - highest;
        for (std::size_t v = 0; v < vocabulary; ++v) { row[v] = exponential(row[v] - highest); }
        const A total = lane_sum<A>(vocabulary, [&](std::size_t v) { return row[v]; });
        sum += static_cast<double>(std::log(total) - target);
        const A factor = scale / total;
        for (std::size_t v = 0; v < vocabulary; ++v) { row[v] *= factor; }
        row[targets[t]] -= scale;
    }
    return {sum, tokens};
}

/// Expects the logits' gradient in kept.logits; leaves the gradient at the head's input in scratch.d_residual and
/// adds to the parameters' gradients (where the head is tied, d.logits is the token embedding's).
template <class T, class A = Arithmetic<T>>
void head_backward(const ModelConfig& config, BatchShape batch, const HeadWeights<const T*>& w, const A* input,
                   const HeadActivations<A>& kept, const Scratch<A>& scratch, const HeadWeights<T*>& d) {
    const std::size_t tokens = batch.tokens();
    const std::size_t c = config.width;
    const A* matrix_values = in_arithmetic(w.logits, vocabulary * c, scratch.converted);
    matmul<A>(matrix<const A>(kept.logits, tokens, vocabulary), matrix(matrix_values, vocabulary, c),
              matrix(scratch.d_width, tokens, c), Into::overwrite);
    weight_gradient<T>({tokens, c, vocabulary}, kept.norm, kept.logits, d.logits, scratch.converted);
    std::fill_n(scratch.d_residual, tokens * c, A{0});
    layer_norm_backward(tokens, c, w.norm_weight, input, kept.norm_mean, kept.norm_deviation, scratch.d_width,
                        scratch.d_residual, d.norm_weight, d.norm_bias, scratch.sums);
}

}  // namespace train_gpt
