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
#include "rank_pass.hpp"

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

/// logits = norm(input) W^T, of this rank's part of the vocabulary. Shapes: input [outer, width]; kept.logits
/// [tokens, 256 / tp].
template <class T, class A = Arithmetic<T>>
void head_forward(const RankPass<A>& pass, const HeadWeights<const T*>& w, const A* input,
                  const HeadActivations<A>& kept) {
    const std::size_t c = pass.config.width;
    layer_norm_forward(pass.outer(), c, w.norm_weight, w.norm_bias, input, kept.norm, kept.norm_mean,
                       kept.norm_deviation);
    linear_forward({pass.tokens(), c, pass.split.rows_of_vocabulary()}, w.logits, pass.gather(kept.norm), kept.logits,
                   pass.scratch.converted);
}

/// The cross-entropy of each token summed (one rounding per token, summed in double); logits become
/// scale * (softmax - onehot), the gradient of scale times that sum. No rank holds a token's whole row: its largest
/// logit, the sum of its exponentials and the target's logit go over tp. The same on every tp rank.
template <class A>
SummedLoss cross_entropy_in_place(const RankPass<A>& pass, const std::uint8_t* targets, A scale,
                                  const HeadActivations<A>& kept) {
    const std::size_t tokens = pass.tokens();
    const std::size_t columns = pass.split.rows_of_vocabulary();
    const auto row_of = [&](std::size_t t) { return kept.logits + t * columns; };
    // Of targets before the first, the difference wraps around and is large.
    const auto column_of = [&](std::size_t t) { return targets[t] - pass.split.first_of_vocabulary(); };
    for (std::size_t t = 0; t < tokens; ++t) {
        kept.largest[t] = lane_max(columns, [row = row_of(t)](std::size_t v) { return row[v]; });
    }
    pass.links.max_over_tp({kept.largest, tokens});
    A* const totals = kept.sums;
    A* const chosen = kept.sums + tokens;
    for (std::size_t t = 0; t < tokens; ++t) {
        A* const row = row_of(t);
        const A highest = kept.largest[t];
        chosen[t] = column_of(t) < columns ? row[column_of(t)] - highest : A{0};
        for (std::size_t v = 0; v < columns; ++v) { row[v] = exponential(row[v] - highest); }
        totals[t] = lane_sum<A>(columns, [&](std::size_t v) { return row[v]; });
    }
    pass.links.sum_over_tp({kept.sums, 2 * tokens});
    double sum = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        A* const row = row_of(t);
        sum += static_cast<double>(std::log(totals[t]) - chosen[t]);
        const A factor = scale / totals[t];
        for (std::size_t v = 0; v < columns; ++v) { row[v] *= factor; }
        if (column_of(t) < columns) { row[column_of(t)] -= scale; }
    }
    return {sum, tokens};
}

/// Expects the logits' gradient in kept.logits, and in scratch.gathered what head_forward left there; leaves the
/// gradient at the head's input in scratch.d_residual and adds to the parameters' gradients, to d.logits as `into`
/// says (where the head is tied, it is the token embedding's).
template <class T, class A = Arithmetic<T>>
void head_backward(const RankPass<A>& pass, const HeadWeights<const T*>& w, const A* input,
                   const HeadActivations<A>& kept, const HeadWeights<T*>& d, Into into) {
    const auto& scratch = pass.scratch;
    const std::size_t c = pass.config.width;
    const LinearShape shape{pass.tokens(), c, pass.split.rows_of_vocabulary()};
    const A* const normed = pass.split.splits_tokens() ? scratch.gathered : kept.norm;
    weight_gradient<T>(shape, normed, kept.logits, d.logits, into, scratch.converted);
    pass.sum(scratch.d_width,
             [&](A* partial) { input_gradient(shape, w.logits, kept.logits, partial, scratch.converted); });
    std::fill_n(scratch.d_residual, pass.outer() * c, A{0});
    layer_norm_backward(pass.outer(), c, w.norm_weight, input, kept.norm_mean, kept.norm_deviation, scratch.d_width,
                        scratch.d_residual, d.norm_weight, d.norm_bias, scratch.sums);
}

}  // namespace train_gpt
