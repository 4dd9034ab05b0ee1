// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <shardkit/optim/sgd_options.hpp>

namespace shardkit {

/// One element's SGD step in arithmetic type A (float or double); V as for AdamWUpdate.
///   g = gradient_scale * gradient + weight_decay * p     weight decay as an L2 term, inside the gradient
///   b = momentum * b + g                                 dampening is 0
///   p = p - lr * (none: g | classical: b | nesterov: g + momentum * b)
/// A buffer that starts at zero makes the first step's b = g, PyTorch's special case.
/// Source:  torch.optim.SGD; Sutskever et al., ICML 2013, as PyTorch arranges it
template <std::floating_point A>
struct SgdUpdate {
    A gradient_scale;
    A learning_rate;
    A momentum;
    A weight_decay;
    Momentum rule;

    /// @pre rule is classical or nesterov
    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V& momentum_buffer, V gradient) const {
        const V g = decayed(parameter, gradient);
        momentum_buffer = momentum * momentum_buffer + g;
        const V direction = rule == Momentum::nesterov ? g + momentum * momentum_buffer : momentum_buffer;
        parameter = parameter - learning_rate * direction;
    }

    /// @pre rule is none
    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V gradient) const {
        parameter = parameter - learning_rate * decayed(parameter, gradient);
    }

  private:
    template <class V>
    [[gnu::always_inline]] constexpr V decayed(V parameter, V gradient) const {
        return gradient_scale * gradient + weight_decay * parameter;
    }
};

/// The update of one step; `gradient_scale` as for adamw_update.
/// @pre valid options   Constants are rounded once from double to A.
template <std::floating_point A>
constexpr SgdUpdate<A> sgd_update(const SgdOptions& options, double gradient_scale) {
    return {static_cast<A>(gradient_scale), static_cast<A>(options.learning_rate), static_cast<A>(options.momentum),
            static_cast<A>(options.weight_decay), options.rule};
}

}  // namespace shardkit
