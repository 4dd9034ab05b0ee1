// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/rule_optimizer.hpp>

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
struct AmsgradRule {
    using Options = AdamWOptions;
    using Progress = AdamWRule::Progress;
    static constexpr std::string_view name = "AMSGrad";
    static constexpr std::array<std::string_view, 3> state_names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    static constexpr std::array<bool, 3> squares{false, true, true};
    static constexpr auto products = AdamWRule::products;

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 3; }
    static constexpr void advance(Progress& progress, const Options& options) noexcept {
        AdamWRule::advance(progress, options);
    }
    template <class A>
    using Update = AmsgradUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale) {
        return {AdamWRule::update<A>(progress, options, scale)};
    }
};

}  // namespace shardkit::rules

namespace shardkit SHARDKIT_BUILD {

/// AdamW with amsgrad over a model of sharded groups, as torch.optim.AdamW(amsgrad=True) computes it.
///     AMSGrad optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  three states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    36 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
template <class Engine, class Precision = DefaultPrecision<float>, StateFormat Format = StateFormat::full>
class AMSGrad : public rules::RuleOptimizer<rules::RuleIn<rules::AmsgradRule, Format>, Engine, Precision> {
  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit AMSGrad(const Model<Engine, Precision>& model, AdamWOptions options = {},
                     std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current())
        : rules::RuleOptimizer<rules::RuleIn<rules::AmsgradRule, Format>, Engine, Precision>(
              model, options, std::move(param_groups), where) {}
    /// Keeps the states in `Format`.
    AMSGrad(const Model<Engine, Precision>& model, StatesIn<Format> /*states*/, AdamWOptions options = {},
            std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current())
        : AMSGrad(model, options, std::move(param_groups), where) {}
    /// Says what to write instead.
    template <class Names = detail::PyTorchNames>
    explicit AMSGrad(const Model<Engine, Precision>& model, std::type_identity_t<Names> /*options*/)
        : AMSGrad(model, AdamWOptions{}) {
        static_cast<void>(detail::NeedsOwnNames<Names>{});
    }
    template <class G, class P, class R>
    explicit AMSGrad(Sharded<G, P, Engine, R>& layer, AdamWOptions = {}, const std::vector<ParamGroup>& = {},
                     SourceLocation = {})
        : AMSGrad(detail::needs_model<Model<Engine, Precision>>(layer)) {}
};
template <class Engine, class Precision, StateFormat Format>
AMSGrad(const Model<Engine, Precision>&, StatesIn<Format>, AdamWOptions = {}, const std::vector<ParamGroup>& = {},
        SourceLocation = {}) -> AMSGrad<Engine, Precision, Format>;
template <class Engine, class Precision>
AMSGrad(const Model<Engine, Precision>&, AdamWOptions = {}, const std::vector<ParamGroup>& = {}, SourceLocation = {})
    -> AMSGrad<Engine, Precision>;

}  // namespace SHARDKIT_BUILD
