// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "activations.hpp"
#include "attention.hpp"
#include "block_weights.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "rank_pass.hpp"

namespace train_gpt {

/// output = x + MLP(norm(x)) with x = input + attention(norm(input)), the pre-norm transformer block. QKV and up are
/// column-parallel over tp, projection and down row-parallel: their products are summed, then the bias is added once.
/// Shapes: input, output [outer, width]. Cost: 12 width^2 + 2 width * sequence multiply-adds per token, over all tp
/// ranks.
template <class T, class Rank, class S>
void block_forward(const Rank& pass, const BlockWeights<const T*>& w, const S* input, S* output,
                   const BlockActivations<S>& kept) {
    const auto& scratch = pass.scratch;
    const auto& place = pass.place;
    const std::size_t tokens = pass.tokens();
    const std::size_t outer = pass.outer();
    const std::size_t c = pass.config.width;
    const std::size_t part = pass.split.width(pass.config);
    const CausalAttention attention(pass);
    const auto column_parallel = [&](std::size_t outputs, const T* weight, const T* bias, const S* norm, S* y,
                                     S* gelu) {
        biased_forward({tokens, c, outputs}, weight, bias, pass.gather(norm), y, gelu, scratch.converted, place);
    };
    const auto row_parallel = [&](std::size_t inputs, const T* weight, const T* bias, const S* x, const S* residual,
                                  S* y) {
        pass.sum(y, [&](auto* partial) {
            linear_forward({tokens, inputs, c}, weight, x, partial, scratch.converted, place);
        });
        place.rows(outer, AddBias<T, S>{c, bias, residual, y});
    };

    layer_norm_forward(outer, c, w.norm1_weight, w.norm1_bias, input, kept.norm1, place);
    column_parallel(3 * part, w.qkv_weight, w.qkv_bias, kept.norm1.out, kept.qkv, nullptr);
    attention.forward(kept.qkv, kept.attention, kept.log_sum_exp);
    row_parallel(part, w.projection_weight, w.projection_bias, kept.attention, input, kept.middle);

    layer_norm_forward(outer, c, w.norm2_weight, w.norm2_bias, kept.middle, kept.norm2, place);
    column_parallel(4 * part, w.up_weight, w.up_bias, kept.norm2.out, kept.up, kept.gelu);
    row_parallel(4 * part, w.down_weight, w.down_bias, kept.gelu, kept.middle, output);
}

/// scratch.d_residual holds the gradient at the block's output and becomes the gradient at its input; the
/// parameters' gradients are added to, those of the four weights as `into` says. Cost: twice the forward pass, and
/// the scores of attention once more.
template <class T, class Rank, class S>
void block_backward(const Rank& pass, const BlockWeights<const T*>& w, const S* input,
                    const BlockActivations<S>& kept, const BlockWeights<T*>& d, Into into) {
    const auto& scratch = pass.scratch;
    const auto& place = pass.place;
    const std::size_t tokens = pass.tokens();
    const std::size_t outer = pass.outer();
    const std::size_t c = pass.config.width;
    const std::size_t part = pass.split.width(pass.config);
    const CausalAttention attention(pass);
    S* const residual = scratch.d_residual;
    // A row-parallel layer, down to the gradient at its input, which is GELU's output where `before` is its input.
    const auto row_parallel = [&](std::size_t inputs, const T* weight, const S* x, const S* before, S* dx,
                                  T* d_weight, T* d_bias) {
        bias_gradient(outer, c, residual, d_bias, scratch.sums, place);
        const S* const dy = pass.gather(residual);
        const LinearShape shape{tokens, inputs, c};
        input_gradient(shape, weight, dy, dx, scratch.converted, place, before);
        weight_gradient(shape, x, dy, d_weight, into, scratch.converted, place);
    };
    // A column-parallel layer, down to the gradient at the norm before it, in scratch.d_width.
    const auto column_parallel = [&](std::size_t outputs, const T* weight, const S* norm, const S* dy, T* d_weight,
                                     T* d_bias) {
        bias_gradient(tokens, outputs, dy, d_bias, scratch.sums, place);
        weight_gradient({tokens, c, outputs}, pass.gather(norm), dy, d_weight, into, scratch.converted, place);
        pass.sum(scratch.d_width, [&](auto* partial) {
            input_gradient({tokens, c, outputs}, weight, dy, partial, scratch.converted, place);
        });
    };

    row_parallel(4 * part, w.down_weight, kept.gelu, kept.up, scratch.d_up, d.down_weight, d.down_bias);
    column_parallel(4 * part, w.up_weight, kept.norm2.out, scratch.d_up, d.up_weight, d.up_bias);
    layer_norm_backward(outer, c, w.norm2_weight, kept.middle, kept.norm2, scratch.d_width, residual, d.norm2_weight,
                        d.norm2_bias, scratch.sums, place);

    row_parallel(part, w.projection_weight, kept.attention, nullptr, scratch.d_heads, d.projection_weight,
                 d.projection_bias);
    attention.backward(kept.qkv, kept.attention, kept.log_sum_exp, scratch.d_heads, scratch.d_packed);
    column_parallel(3 * part, w.qkv_weight, kept.norm1.out, scratch.d_packed, d.qkv_weight, d.qkv_bias);
    layer_norm_backward(outer, c, w.norm1_weight, input, kept.norm1, scratch.d_width, residual, d.norm1_weight,
                        d.norm1_bias, scratch.sums, place);
}

}  // namespace train_gpt
