// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>

namespace shardkit::rules {

/// One element's Lion step in arithmetic type A; V as for AdamWUpdate.
///   g = gradient_scale * gradient
///   c = beta1 * m + (1 - beta1) * g
///   p = decay * p - lr * sign(c)                         decay = 1 - lr * weight_decay, decoupled
///   m = beta2 * m + (1 - beta2) * g
/// sign(0) is 0, so padding survives; sign(NaN) is NaN.
/// Source:  Chen et al., arXiv 2302.06675, algorithm 2
template <std::floating_point A>
struct alignas(16) LionUpdate {
    Factor<A> gradient_scale;
    A decay;
    A learning_rate;
    A beta1;
    A one_minus_beta1;
    A beta2;
    A one_minus_beta2;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V& exp_avg, V gradient) const {
        const V g = gradient_scale * gradient;
        const V direction = sign(V(beta1 * exp_avg + one_minus_beta1 * g));
        parameter = decay * parameter - learning_rate * direction;
        exp_avg = beta2 * exp_avg + one_minus_beta2 * g;
    }

  private:
    template <class V>
    [[gnu::always_inline]] static constexpr V sign(V value) {
        using shardkit::rules::select;
        return select(value > A{0}, V(A{1}), select(value < A{0}, V(A{-1}), value));
    }
};

/// The update of one step; `gradient_scale` as for adamw_update.
/// @pre valid options   Constants are computed in double and rounded once to A.
template <std::floating_point A>
constexpr LionUpdate<A> lion_update(const LionOptions& options, double gradient_scale) {
    return {.gradient_scale = Factor<A>(gradient_scale),
            .decay = static_cast<A>(1 - options.learning_rate * options.weight_decay),
            .learning_rate = static_cast<A>(options.learning_rate),
            .beta1 = static_cast<A>(options.beta1),
            .one_minus_beta1 = static_cast<A>(1 - options.beta1),
            .beta2 = static_cast<A>(options.beta2),
            .one_minus_beta2 = static_cast<A>(1 - options.beta2)};
}

/// Lion's part of an Optimizer.
struct LionRule : CountsSteps {
    using Options = LionOptions;
    static constexpr std::string_view name = "Lion";
    static constexpr std::array<OptionRange<Options>, 4> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"beta1", &Options::beta1, fraction},
         {"beta2", &Options::beta2, fraction},
         {"weight_decay", &Options::weight_decay, not_negative}}};
    static constexpr std::array<std::string_view, 1> state_names{"exp_avg"};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 1; }
    template <class A>
    using Update = LionUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return lion_update<A>(options, scale);
    }
};

}  // namespace shardkit::rules

namespace shardkit {

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const LionOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_ranges<rules::LionRule>(options, ElementType::fp64, where);
}

}  // namespace shardkit
