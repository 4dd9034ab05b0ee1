// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/muon/muon_options.hpp>
#include <shardkit/muon/newton_schulz.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/sgd.hpp>

namespace shardkit::rules {

/// One element's second pass: p = decay * p - step * x, decay = 1 - lr * weight_decay, step = lr * scale.
template <std::floating_point A>
struct MuonApply {
    A decay;
    A step;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V moved) const {
        parameter = decay * parameter - step * moved;
    }
};

/// One element's first pass in arithmetic type A; V as for AdamWUpdate.
///   g = gradient_scale * gradient
///   m = momentum * m + (1 - momentum) * g
///   direction = classical: m | nesterov: momentum * m + (1 - momentum) * g
/// Source:  torch.optim.Muon; Jordan's m = momentum * m + g has the same directions
template <std::floating_point A>
struct alignas(16) MuonUpdate {
    double learning_rate;
    double weight_decay;
    double epsilon;
    Factor<A> gradient_scale;
    A momentum;
    A one_minus_momentum;
    Momentum rule;
    MuonScale scale;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& direction, V& buffer, V gradient) const {
        const V g = one_minus_momentum * V(gradient_scale * gradient);
        buffer = momentum * buffer + g;
        direction = rule == Momentum::nesterov ? V(momentum * buffer + g) : buffer;
    }
    constexpr MuonApply<A> apply(MatrixExtents extents) const {
        const auto rows = static_cast<double>(extents.rows);
        const auto columns = static_cast<double>(extents.columns);
        const double longer = rows > columns ? rows : columns;
        const double factor =
            scale == MuonScale::moonlight ? 0.2 * square_root(longer) : square_root(longer / columns);
        return {static_cast<A>(1 - learning_rate * weight_decay), static_cast<A>(learning_rate * factor)};
    }
};

/// Muon's part of an Optimizer, of matrices alone.
struct MuonRule : CountsSteps {
    using Options = MuonOptions;
    static constexpr std::string_view name = "Muon";
    static constexpr std::array<OptionRange<Options>, 4> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"momentum", &Options::momentum, fraction},
         {"weight_decay", &Options::weight_decay, not_negative},
         {"epsilon", &Options::epsilon, positive}}};
    static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 1; }
    template <class A>
    using Update = MuonUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {options.learning_rate,
                options.weight_decay,
                options.epsilon,
                Factor<A>(scale),
                static_cast<A>(options.momentum),
                static_cast<A>(1 - options.momentum),
                options.rule,
                options.scale};
    }

    template <class A>
    static constexpr std::size_t scratch(MatrixExtents extents) noexcept {
        return newton_schulz_scratch<A>(extents);
    }
    static constexpr std::size_t kept(MatrixExtents /*extents*/) noexcept { return 0; }
    static constexpr std::uint64_t cost(MatrixExtents extents) noexcept { return orthogonalisation_cost(extents); }
    template <class A>
    using Works = NewtonSchulzWorks<A>;
    template <class Products, class A>
    static void transform(const Stream& stream, const Products& products, const WholeMatrix<A, Update<A>>& whole) {
        newton_schulz(stream, products, whole.extents, &whole.update->epsilon, whole.values, whole.scratch);
    }
};

}  // namespace shardkit::rules

namespace shardkit {

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const MuonOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_ranges<rules::MuonRule>(options, ElementType::fp64, where);
    require_argument(options.rule != Momentum::none, where,
                     "Muon: rule is Momentum::none, expected classical or nesterov");
}

}  // namespace shardkit
