// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "activations.hpp"
#include "block_weights.hpp"
#include "exponential.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "rank_pass.hpp"

namespace train_gpt {

/// logits = norm(input) W^T, of this rank's part of the vocabulary. Shapes: input [outer, width]; kept.logits
/// [tokens, split.rows_of_vocabulary].
template <class T, class Rank, class S>
void head_forward(const Rank& pass, const HeadWeights<const T*>& w, const S* input, const HeadActivations<S>& kept) {
    const std::size_t c = pass.config.width;
    layer_norm_forward(pass.outer(), c, w.norm_weight, w.norm_bias, input, kept.norm, pass.place);
    linear_forward({pass.tokens(), c, pass.split.rows_of_vocabulary(pass.config)}, w.logits,
                   pass.gather(kept.norm.out), kept.logits, pass.scratch.converted, pass.place);
}

/// This rank's part of the logits, of which the first `columns` are those of tokens and the others padding, and the
/// columns of their targets; of targets before the first column that it has, the difference wraps around and is
/// large.
template <class S>
struct TargetLogits {
    S* logits;
    std::size_t stride;
    std::size_t columns;
    const Token* targets;
    std::size_t first;

    constexpr S* row(std::size_t t) const { return logits + t * stride; }
    constexpr std::size_t column(std::size_t t) const { return targets[t] - first; }
};

/// As rows: the largest of a token's logits.
template <class S>
struct LargestLogit {
    using A = Arithmetic<S>;

    TargetLogits<S> of;
    A* largest;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        const S* const from = of.row(t);
        const A found = of.columns == 0 ? std::numeric_limits<A>::lowest()
                                        : row.max(of.columns, [&](std::size_t v) { return static_cast<A>(from[v]); });
        row.once([&] { largest[t] = found; });
    }
};
/// As rows: logits become their exponentials, less the largest; their sum, and the target's logit likewise.
template <class S>
struct Exponentials {
    using A = Arithmetic<S>;

    TargetLogits<S> of;
    const A* largest;
    A* totals;
    A* chosen;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        S* const to = of.row(t);
        const auto value = [&](std::size_t v) { return static_cast<A>(to[v]); };
        const A highest = largest[t];
        const std::size_t target = of.column(t);
        row.once([&] { chosen[t] = target < of.columns ? value(target) - highest : A{0}; });
        row.each(of.columns, [&](std::size_t v) { to[v] = static_cast<S>(exponential(value(v) - highest)); });
        const A total = row.template sum<A>(of.columns, value);
        row.once([&] { totals[t] = total; });
    }
};
/// As rows: exponentials become scale * (softmax - onehot), and padding 0.
template <class S>
struct LogitsGradient {
    using A = Arithmetic<S>;

    TargetLogits<S> of;
    const A* totals;
    A scale;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        S* const to = of.row(t);
        const auto value = [&](std::size_t v) { return static_cast<A>(to[v]); };
        const A factor = scale / totals[t];
        row.each(of.columns, [&](std::size_t v) { to[v] = static_cast<S>(value(v) * factor); });
        row.each(of.stride - of.columns, [&](std::size_t v) { to[of.columns + v] = S{}; });
        row.once([&] {
            if (of.column(t) < of.columns) { to[of.column(t)] = static_cast<S>(value(of.column(t)) - scale); }
        });
    }
};
/// As one row: the tokens' losses, each rounded once, summed in double.
template <class A>
struct SumLosses {
    std::size_t tokens;
    const A* totals;
    const A* chosen;
    double* sum;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t /*one*/) const {
        const double all = row.template total<double>(
            tokens, [&](std::size_t t) { return static_cast<double>(std::log(totals[t]) - chosen[t]); });
        row.once([&] { *sum = all; });
    }
};

/// *sum becomes the sum of the tokens' cross-entropies; logits become scale * (softmax - onehot), the gradient of
/// scale times that sum. No rank holds a token's whole row: its largest logit, the sum of its exponentials and the
/// target's logit go over tp. The same on every tp rank.
template <class Rank, class S, class A = Arithmetic<S>>
void cross_entropy_in_place(const Rank& pass, const Token* targets, A scale, const HeadActivations<S>& kept,
                            double* sum) {
    const std::size_t tokens = pass.tokens();
    const TargetLogits<S> of{kept.logits, pass.split.rows_of_vocabulary(pass.config),
                             pass.split.tokens_of_vocabulary(pass.config), targets,
                             pass.split.first_of_vocabulary(pass.config)};
    A* const totals = kept.sums;
    A* const chosen = kept.sums + tokens;
    pass.place.rows(tokens, LargestLogit<S>{of, kept.largest});
    pass.links.max_over_tp({kept.largest, tokens});
    pass.place.rows(tokens, Exponentials<S>{of, kept.largest, totals, chosen});
    pass.links.sum_over_tp({kept.sums, 2 * tokens});
    pass.place.rows(1, SumLosses<A>{tokens, totals, chosen, sum});
    pass.place.rows(tokens, LogitsGradient<S>{of, totals, scale});
}

/// Expects the logits' gradient in kept.logits, and in scratch.gathered what head_forward left there; leaves the
/// gradient at the head's input in scratch.d_residual and adds to the parameters' gradients, to d.logits as `into`
/// says (where the head is tied, it is the token embedding's).
template <class T, class Rank, class S>
void head_backward(const Rank& pass, const HeadWeights<const T*>& w, const S* input, const HeadActivations<S>& kept,
                   const HeadWeights<T*>& d, Into into) {
    const auto& scratch = pass.scratch;
    const std::size_t c = pass.config.width;
    const LinearShape shape{pass.tokens(), c, pass.split.rows_of_vocabulary(pass.config)};
    const S* const normed = pass.split.splits_tokens() ? scratch.gathered : kept.norm.out;
    weight_gradient<T>(shape, normed, kept.logits, d.logits, into, scratch.converted, pass.place);
    pass.sum(scratch.d_width, [&](auto* partial) {
        input_gradient(shape, w.logits, kept.logits, partial, scratch.converted, pass.place);
    });
    pass.place.each(pass.outer() * c, Fill<S>{scratch.d_residual, S{}});
    layer_norm_backward(pass.outer(), c, w.norm_weight, input, kept.norm, scratch.d_width, scratch.d_residual,
                        d.norm_weight, d.norm_bias, scratch.sums, pass.place);
}

}  // namespace train_gpt
