// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../model/initialise.hpp"
#include "forward_backward.hpp"

namespace train_gpt {

/// The byte whose share of the softmax over `logits` holds the point `uniform` in (0, 1].
template <class A>
std::uint8_t pick(const A* logits, double uniform) {
    const A highest = *std::max_element(logits, logits + vocabulary);
    const auto weight = [&](std::size_t v) { return std::exp(static_cast<double>(logits[v] - highest)); };
    double total = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) { total += weight(v); }
    double left = uniform * total;
    for (std::size_t v = 0; v + 1 < vocabulary; ++v) {
        left -= weight(v);
        if (left <= 0) { return static_cast<std::uint8_t>(v); }
    }
    return static_cast<std::uint8_t>(vocabulary - 1);
}

/// `count` bytes that the model writes after a line break, each drawn from its distribution over the next byte.
/// Collective: every rank runs it and gathers the same groups; all get the same text.
template <class Model, class T = typename Model::T>
std::string sample(Model& model, Pass<T>& pass, const ModelConfig& config, std::size_t count, std::uint64_t seed) {
    std::string text = "\n";
    text.reserve(count + 1);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t seen = std::min(text.size(), config.sequence);
        const auto* tokens = reinterpret_cast<const std::uint8_t*>(text.data() + text.size() - seen);
        forward_blocks(model, pass, {1, seen}, tokens);
        with_head(model, [&](const HeadWeights<const T*>& w) { pass.head(w); });
        const double uniform = unit_interval(mix(mix(seed ^ 0x73616d706c65U) + i));
        text += static_cast<char>(pick(pass.logits() + (seen - 1) * vocabulary, uniform));
    }
    return text.substr(1);
}

}  // namespace train_gpt
