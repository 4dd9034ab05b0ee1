// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/context_parallel/causal_chunks.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "../model/initialise.hpp"
#include "../model/pass.hpp"
#include "forward_backward.hpp"

namespace train_gpt {

/// The token whose share of the softmax over `logits` holds the point `uniform` in (0, 1].
template <class A>
Token pick(std::span<const A> logits, double uniform) {
    const A highest = *std::max_element(logits.begin(), logits.end());
    const auto weight = [&](std::size_t v) { return std::exp(static_cast<double>(logits[v] - highest)); };
    double total = 0;
    for (std::size_t v = 0; v < logits.size(); ++v) { total += weight(v); }
    double left = uniform * total;
    for (std::size_t v = 0; v + 1 < logits.size(); ++v) {
        left -= weight(v);
        if (left <= 0) { return static_cast<Token>(v); }
    }
    return static_cast<Token>(logits.size() - 1);
}

/// `count` tokens that a model writes after `begin`, each drawn from its distribution over the next one. Where
/// sequences are split, tokens are added up to the next length that can be; none before sees them.
/// Collective: every rank runs it and gathers the same groups; all get the same tokens.
template <class Model, class T = typename Model::T>
std::vector<Token> sample(sk::Rank& rank, Model& model, Pass<T>& pass, const ModelConfig& config, const Split& split,
                          Token begin, std::size_t count, std::uint64_t seed) {
    using A = Arithmetic<T>;
    std::vector<Token> text{begin};
    text.reserve(count + 1);
    std::vector<Token> tokens;
    std::vector<A> logits(config.vocabulary);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t seen = std::min(text.size(), config.sequence);
        const std::size_t length = (seen + split.token_unit() - 1) / split.token_unit() * split.token_unit();
        const auto part = split.chunks(length);
        tokens.assign(part.tokens(), 0);
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            const std::size_t position = part.position(t);
            if (position < seen) { tokens[t] = text[text.size() - seen + position]; }
        }
        forward_blocks(model, pass, split.local({1, length}), tokens.data());
        with_head(model, [&](const HeadWeights<const T*>& w) { pass.head(w); });
        // Each number is known to the ranks of one tp and cp coordinate.
        std::fill(logits.begin(), logits.end(), -std::numeric_limits<A>::infinity());
        pass.copy_logits(seen - 1, logits);
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::max, std::span<A>(logits), rank.compute_stream());
        const double uniform = unit_interval(mix(mix(seed ^ 0x73616d706c65U) + i));
        text.push_back(pick(std::span<const A>(logits), uniform));
    }
    text.erase(text.begin());
    return text;
}

}  // namespace train_gpt
