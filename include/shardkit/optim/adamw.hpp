// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>

namespace shardkit::rules {

/// One element's AdamW step in arithmetic type A (float or double). V is A, or a short vector of A whose
/// lanes behave alike; host and device run the same functor.
///   g = gradient_scale * gradient
///   p = decay * p                                        decay = 1 - lr * weight_decay, decoupled
///   m = beta1 * m + (1 - beta1) * g                      v = beta2 * v + (1 - beta2) * g^2
///   p = p - step_size * m / (sqrt(v) * inverse_root + epsilon)
///   step_size = lr / (1 - beta1^t), inverse_root = 1 / sqrt(1 - beta2^t)
/// A zero p, m and v with a zero gradient stay zero, so padding survives.
/// Source:  torch.optim.AdamW, single-tensor rule; Loshchilov and Hutter, arXiv 1711.05101, algorithm 2
template <std::floating_point A>
struct alignas(8) AdamWUpdate {  // read in pairs; wider, nvcc 13.0 runs out of registers
    Factor<A> gradient_scale;
    A decay;
    A beta1;
    A one_minus_beta1;
    A beta2;
    A one_minus_beta2;
    A step_size;
    A inverse_root;
    A epsilon;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V& exp_avg, V& exp_avg_sq, V gradient) const {
        add(exp_avg, exp_avg_sq, gradient);
        move(parameter, exp_avg, exp_avg_sq);
    }

    /// The moments' part of it.
    template <class V>
    [[gnu::always_inline]] constexpr void add(V& exp_avg, V& exp_avg_sq, V gradient) const {
        add_scaled(exp_avg, exp_avg_sq, V(gradient_scale * gradient));
    }
    /// The same of g.
    template <class V>
    [[gnu::always_inline]] constexpr void add_scaled(V& exp_avg, V& exp_avg_sq, V g) const {
        exp_avg = beta1 * exp_avg + one_minus_beta1 * g;
        // (c * g) * g, not c * (g * g): the square alone overflows long before its tiny share of v does.
        exp_avg_sq = beta2 * exp_avg_sq + (one_minus_beta2 * g) * g;
    }
    /// The parameter's.
    template <class V>
    [[gnu::always_inline]] constexpr void move(V& parameter, V exp_avg, V second_moment) const {
        using shardkit::rules::square_root;
        const V denominator = square_root(second_moment) * inverse_root + epsilon;
        parameter = decay * parameter - (step_size * exp_avg) / denominator;
    }

    /// The step without the products by the gradient scale.
    struct Unscaled {
        AdamWUpdate adamw;

        template <class V>
        [[gnu::always_inline]] constexpr void operator()(V& parameter, V& exp_avg, V& exp_avg_sq, V gradient) const {
            adamw.add_scaled(exp_avg, exp_avg_sq, gradient);
            adamw.move(parameter, exp_avg, exp_avg_sq);
        }
    };
    /// The same bits where the gradient scale is 1.
    constexpr Unscaled unscaled() const noexcept { return {*this}; }
};

/// The update of one step. `beta1_power` and `beta2_power` are beta^t, t counting from 1, kept as running
/// products in double by the caller; `gradient_scale` is everything that multiplies the raw gradient: one
/// over the divisor, one over the loss scale, the clip coefficient.
/// @pre valid options   Constants are computed in double and rounded once to A.
template <std::floating_point A>
constexpr AdamWUpdate<A> adamw_update(const AdamWOptions& options, double beta1_power, double beta2_power,
                                      double gradient_scale) {
    return {.gradient_scale = Factor<A>(gradient_scale),
            .decay = static_cast<A>(1 - options.learning_rate * options.weight_decay),
            .beta1 = static_cast<A>(options.beta1),
            .one_minus_beta1 = static_cast<A>(1 - options.beta1),
            .beta2 = static_cast<A>(options.beta2),
            .one_minus_beta2 = static_cast<A>(1 - options.beta2),
            .step_size = static_cast<A>(options.learning_rate / (1 - beta1_power)),
            .inverse_root = static_cast<A>(1 / square_root(1 - beta2_power)),
            .epsilon = static_cast<A>(options.epsilon)};
}

/// AdamW's part of an Optimizer.
struct AdamWRule {
    using Options = AdamWOptions;
    static constexpr std::string_view name = "AdamW";
    static constexpr std::array<OptionRange<Options>, 5> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"beta1", &Options::beta1, fraction},
         {"beta2", &Options::beta2, fraction},
         {"epsilon", &Options::epsilon, positive},
         {"weight_decay", &Options::weight_decay, not_negative}}};
    static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};
    static constexpr std::array<bool, 2> squares{false, true};

    struct Progress {
        std::uint64_t steps = 0;
        double beta1_power = 1;
        double beta2_power = 1;
    };
    static constexpr std::array<ProgressProduct<Progress>, 2> products{
        {{"beta1_power", &Progress::beta1_power}, {"beta2_power", &Progress::beta2_power}}};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 2; }
    static constexpr void advance(Progress& progress, const Options& options) noexcept {
        ++progress.steps;
        progress.beta1_power *= options.beta1;
        progress.beta2_power *= options.beta2;
    }
    template <class A>
    using Update = AdamWUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale) {
        return adamw_update<A>(options, progress.beta1_power, progress.beta2_power, scale);
    }
};

}  // namespace shardkit::rules

namespace shardkit {

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const AdamWOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_ranges<rules::AdamWRule>(options, ElementType::fp64, where);
}

}  // namespace shardkit

namespace shardkit::rules {

/// One element's step of AdamW with the largest second moment so far in the place of the last one:
///   p, m, v as AdamWUpdate's
///   x = max(x, v)
///   p = p - step_size * m / (sqrt(x) * inverse_root + epsilon)
/// A second moment that is NaN stays NaN, and so does its maximum.
/// Source:  torch.optim.AdamW(amsgrad=True); Reddi et al., On the Convergence of Adam and Beyond, ICLR 2018
template <std::floating_point A>
struct AmsgradUpdate {
    AdamWUpdate<A> adamw;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V& exp_avg, V& exp_avg_sq, V& max_exp_avg_sq,
                                                     V gradient) const {
        using shardkit::rules::select;
        adamw.add(exp_avg, exp_avg_sq, gradient);
        max_exp_avg_sq = select(max_exp_avg_sq > exp_avg_sq, max_exp_avg_sq, exp_avg_sq);
        adamw.move(parameter, exp_avg, max_exp_avg_sq);
    }
};

/// AMSGrad's part of an Optimizer.
struct AmsgradRule : AdamWRule {
    static constexpr std::string_view name = "AMSGrad";
    static constexpr std::array<std::string_view, 3> state_names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    static constexpr std::array<bool, 3> squares{false, true, true};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 3; }
    template <class A>
    using Update = AmsgradUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale) {
        return {AdamWRule::update<A>(progress, options, scale)};
    }
};

}  // namespace shardkit::rules
