// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>

namespace shardkit::rules {

/// One element's SGD step in arithmetic type A (float or double); V as for AdamWUpdate.
///   g = gradient_scale * gradient + weight_decay * p     weight decay as an L2 term, inside the gradient
///   b = momentum * b + g                                 dampening is 0
///   p = p - lr * (none: g | classical: b | nesterov: g + momentum * b)
/// A buffer that starts at zero makes the first step's b = g, PyTorch's special case.
/// Source:  torch.optim.SGD; Sutskever et al., ICML 2013, as PyTorch arranges it
template <std::floating_point A>
struct alignas(16) SgdUpdate {
    Factor<A> gradient_scale;
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
    return {Factor<A>(gradient_scale), static_cast<A>(options.learning_rate), static_cast<A>(options.momentum),
            static_cast<A>(options.weight_decay), options.rule};
}

/// SGD's part of an Optimizer.
struct SgdRule : CountsSteps {
    using Options = SgdOptions;
    static constexpr std::string_view name = "SGD";
    static constexpr std::array<OptionRange<Options>, 3> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"momentum", &Options::momentum, not_negative},
         {"weight_decay", &Options::weight_decay, not_negative}}};
    static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};

    static constexpr std::size_t state_count(const Options& options) noexcept {
        return options.rule == Momentum::none ? 0 : 1;
    }
    template <class A>
    using Update = SgdUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return sgd_update<A>(options, scale);
    }
};

}  // namespace shardkit::rules

namespace shardkit {

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const SgdOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_ranges<rules::SgdRule>(options, ElementType::fp64, where);
    if (options.rule == Momentum::none && options.momentum != 0) {
        throw_invalid_argument(where, "SGD: momentum is ", detail::number_text(options.momentum),
                               " with Momentum::none, expected 0, or Momentum::classical or nesterov");
    }
    require_argument(options.rule != Momentum::nesterov || options.momentum != 0, where,
                     "SGD: momentum is 0 with Momentum::nesterov, expected a finite number > 0");
}

}  // namespace shardkit
