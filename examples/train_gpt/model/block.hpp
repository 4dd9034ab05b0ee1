// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "activations.hpp"
#include "attention.hpp"
#include "block_weights.hpp"
#include "config.hpp"
#include "gelu.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"

namespace train_gpt {

template <class A>
void add_into(std::size_t count, const A* addend, A* sum) {
    for (std::size_t i = 0; i < count; ++i) { sum[i] += addend[i]; }
}

/// output = x + MLP(norm(x)) with x = input + attention(norm(input)), the pre-norm transformer block.
/// Shapes: input, output [tokens, width]. Cost: 12 width^2 + 2 width * sequence multiply-adds per token.
template <class T, class A = Arithmetic<T>>
void block_forward(const ModelConfig& config, BatchShape batch, const BlockWeights<const T*>& w, const A* input,
                   A* output, const BlockActivations<A>& kept, const Scratch<A>& scratch) {
    const std::size_t tokens = batch.tokens();
    const std::size_t c = config.width;
    layer_norm_forward(tokens, c, w.norm1_weight, w.norm1_bias, input, kept.norm1, kept.norm1_mean,
                       kept.norm1_deviation);
    linear_forward({tokens, c, 3 * c}, w.qkv_weight, w.qkv_bias, kept.norm1, kept.qkv, scratch.converted);
    attention_forward<A>({batch, config.heads, config.head_width()}, kept.qkv, kept.probabilities, kept.attention);
    linear_forward({tokens, c, c}, w.projection_weight, w.projection_bias, kept.attention, kept.middle,
                   scratch.converted);
    add_into(tokens * c, input, kept.middle);
    layer_norm_forward(tokens, c, w.norm2_weight, w.norm2_bias, kept.middle, kept.norm2, kept.norm2_mean,
                       kept.norm2_deviation);
    linear_forward({tokens, c, 4 * c}, w.up_weight, w.up_bias, kept.norm2, kept.up, scratch.converted);
    gelu_forward(tokens * 4 * c, kept.up, kept.gelu);
    linear_forward({tokens, 4 * c, c}, w.down_weight, w.down_bias, kept.gelu, output, scratch.converted);
    add_into(tokens * c, kept.middle, output);
}

/// scratch.d_residual holds the gradient at the block's output and becomes the gradient at its input; the
/// parameters' gradients are added to. Cost: twice the forward pass.
template <class T, class A = Arithmetic<T>>
void block_backward(const ModelConfig& config, BatchShape batch, const BlockWeights<const T*>& w, const A* input,
                    const BlockActivations<A>& kept, const Scratch<A>& scratch, const BlockWeights<T*>& d) {
    const std::size_t tokens = batch.tokens();
    const std::size_t c = config.width;
    A* residual = scratch.d_residual;
    linear_backward({tokens, 4 * c, c}, w.down_weight, kept.gelu, residual, scratch.d_up, d.down_weight, d.down_bias,
                    scratch.converted, scratch.sums);
    gelu_backward_in_place(tokens * 4 * c, kept.up, scratch.d_up);
    linear_backward({tokens, c, 4 * c}, w.up_weight, kept.norm2, scratch.d_up, scratch.d_width, d.up_weight,
                    d.up_bias, scratch.converted, scratch.sums);
    layer_norm_backward(tokens, c, w.norm2_weight, kept.middle, kept.norm2_mean, kept.norm2_deviation,
                        scratch.d_width, residual, d.norm2_weight, d.norm2_bias, scratch.sums);
    linear_backward({tokens, c, c}, w.projection_weight, kept.attention, residual, scratch.d_width,
                    d.projection_weight, d.projection_bias, scratch.converted, scratch.sums);
    attention_backward<A>({batch, config.heads, config.head_width()}, kept.qkv, kept.probabilities, scratch.d_width,
                          scratch.d_packed, scratch.d_scores);
    linear_backward({tokens, c, 3 * c}, w.qkv_weight, kept.norm1, scratch.d_packed, scratch.d_width, d.qkv_weight,
                    d.qkv_bias, scratch.converted, scratch.sums);
    layer_norm_backward(tokens, c, w.norm1_weight, input, kept.norm1_mean, kept.norm1_deviation, scratch.d_width,
                        residual, d.norm1_weight, d.norm1_bias, scratch.sums);
}

}  // namespace train_gpt
