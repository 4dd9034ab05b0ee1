// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_gpt {

/// How much a router's auxiliary loss counts beside the loss of tokens.
inline constexpr double auxiliary_coefficient = 0.01;

/// Chooses the experts of each token: the `top` largest of its logits, of equal ones the first. A choice's weight is
/// its share of the softmax over the chosen ones. The auxiliary loss of a pass is that of the Switch Transformer,
/// experts * sum over experts of (its share of the choices) * (its mean probability).
/// Source: arXiv 2101.03961, section 2.2; weights as Mixtral's, arXiv 2401.04088, section 2.1
template <class A>
class Router {
  public:
    /// Bytes of a router for passes of so many tokens.
    static std::size_t bytes(std::size_t experts, std::size_t top, std::size_t tokens) {
        return (tokens * (experts + top) + experts) * sizeof(A) + tokens * top * sizeof(std::uint32_t);
    }

    /// Takes memory for passes of at most so many tokens.
    Router(std::size_t experts, std::size_t top, std::size_t tokens) : experts_(experts), top_(top) {
        probabilities_.reserve(tokens * experts);
        chosen_.reserve(tokens * top);
        weights_.reserve(tokens * top);
    }

    /// Shapes: logits [tokens, experts]
    void choose(std::size_t tokens, const A* logits) {
        probabilities_.resize(tokens * experts_);
        chosen_.resize(tokens * top_);
        weights_.resize(tokens * top_);
        shares_.assign(experts_, A{0});
        for (std::size_t t = 0; t < tokens; ++t) {
            const A* const of = logits + t * experts_;
            A* const p = probabilities_.data() + t * experts_;
            const A largest = *std::max_element(of, of + experts_);
            A sum{0};
            for (std::size_t e = 0; e < experts_; ++e) { sum += p[e] = std::exp(of[e] - largest); }
            for (std::size_t e = 0; e < experts_; ++e) { p[e] /= sum; }
            A chosen{0};
            for (std::size_t k = 0; k < top_; ++k) {
                const auto* const before = chosen_.data() + t * top_;
                std::size_t best = experts_;
                for (std::size_t e = 0; e < experts_; ++e) {
                    if (std::find(before, before + k, e) != before + k) { continue; }
                    if (best == experts_ || of[e] > of[best]) { best = e; }
                }
                chosen_[t * top_ + k] = static_cast<std::uint32_t>(best);
                chosen += p[best];
                shares_[best] += A{1};
            }
            for (std::size_t k = 0; k < top_; ++k) { weights_[t * top_ + k] = p[chosen_[t * top_ + k]] / chosen; }
        }
        for (A& share : shares_) { share /= static_cast<A>(tokens * top_); }
    }
    /// Makes the gradient at the logits of the choices' weights, whose gradients are given, and of the auxiliary loss
    /// times `factor`. Shapes: d_weights [tokens, top]; d_logits [tokens, experts]
    void backward(const A* d_weights, A factor, A* d_logits) const {
        const std::size_t tokens = chosen_.size() / top_;
        const A of_share = factor * static_cast<A>(experts_) / static_cast<A>(tokens);
        for (std::size_t t = 0; t < tokens; ++t) {
            const A* const p = probabilities_.data() + t * experts_;
            A* const d = d_logits + t * experts_;
            A mean{0};
            for (std::size_t e = 0; e < experts_; ++e) { mean += p[e] * of_share * shares_[e]; }
            for (std::size_t e = 0; e < experts_; ++e) { d[e] = p[e] * (of_share * shares_[e] - mean); }
            A weighted{0};
            for (std::size_t k = 0; k < top_; ++k) { weighted += weights_[t * top_ + k] * d_weights[t * top_ + k]; }
            for (std::size_t k = 0; k < top_; ++k) {
                const std::size_t c = t * top_ + k;
                d[chosen_[c]] += weights_[c] * (d_weights[c] - weighted);
            }
        }
    }
    /// Returns the auxiliary loss of the pass.
    A auxiliary_loss() const {
        const std::size_t tokens = chosen_.size() / top_;
        A loss{0};
        for (std::size_t e = 0; e < experts_; ++e) {
            A mean{0};
            for (std::size_t t = 0; t < tokens; ++t) { mean += probabilities_[t * experts_ + e]; }
            loss += shares_[e] * mean / static_cast<A>(tokens);
        }
        return loss * static_cast<A>(experts_);
    }

    const std::vector<std::uint32_t>& chosen() const noexcept { return chosen_; }
    const std::vector<A>& weights() const noexcept { return weights_; }

  private:
    std::size_t experts_;
    std::size_t top_;
    std::vector<A> probabilities_;  // [tokens, experts]
    std::vector<std::uint32_t> chosen_;
    std::vector<A> weights_;
    std::vector<A> shares_;  // of the choices, by expert
};

}  // namespace train_gpt
