// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/step/argument_types.hpp>

// The optimizers of the library's rules of elements, in both forms.

namespace shardkit::detail {
/// Is what hyper-parameters are called in PyTorch: for a sentence in place of the compiler's.
struct PyTorchNames {
    double lr = 0;
    double momentum = 0;
    double dampening = 0;
    std::array<double, 2> betas{};
    double eps = 0;
    double weight_decay = 0;
    bool nesterov = false;
};
template <class Names>
struct NeedsOwnNames {
    static constexpr bool are_own = sizeof(Names) == 0;
    static_assert(are_own,
                  "optimizer options have names of their own: lr is learning_rate, betas are beta1 and beta2, eps is "
                  "epsilon");
};
}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {

/// An optimizer of one rule, with its options.
template <class OptionsType, class Base = OptimizerFrame>
class RuleOptimizer : public Base {
  public:
    using Options = OptionsType;
    using Base::Base;

    Options options(SourceLocation where = SourceLocation::current()) const {
        return Base::options(where).template as<Options>();
    }
    /// Replaces all hyper-parameters, the learning rate too; takes effect with the next step. What a ParamGroup gives
    /// stays that group's. A bias correction is by the products of the betas that the steps were made with.
    /// Order:   stream-ordered; local work. Ranks compare the hyper-parameters with the next step's.
    /// @throws  std::invalid_argument for what is out of range, or another number of states (another Momentum, say):
    ///          nothing has changed then
    void set_options(const Options& options, SourceLocation where = SourceLocation::current()) {
        Base::set_options({nullptr, options}, where);
    }
};

/// The same over a model, with the states in a format. `Functions::in<format>()` are the rule's with its states in
/// one: a format is compiled where an optimizer is made with it.
template <class OptionsType, class Functions>
class ElementOptimizer : public RuleOptimizer<OptionsType> {
    using Base = RuleOptimizer<OptionsType>;

  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, a ParamGroup that decides for no parameter,
    ///         or two groups with one path
    explicit ElementOptimizer(const Model& model, OptionsType options = {}, std::vector<ParamGroup> param_groups = {},
                              SourceLocation where = SourceLocation::current())
        : ElementOptimizer(model, states_in<StateFormat::full>, options, std::move(param_groups), where) {}
    /// Keeps the states in `Format`.
    /// @throws std::invalid_argument for a master of fp64 too, where that is not StateFormat::full
    template <StateFormat Format>
    ElementOptimizer(const Model& model, StatesIn<Format> /*states*/, OptionsType options = {},
                     std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current())
        : Base(model, {&Functions::template in<Format>(), options}, std::move(param_groups), where) {}
    /// Says what to write instead.
    template <class Names = PyTorchNames>
    explicit ElementOptimizer(const Model& model, std::type_identity_t<Names> /*options*/) : ElementOptimizer(model) {
        static_cast<void>(NeedsOwnNames<Names>{});
    }
    template <class G, class P, class R>
    explicit ElementOptimizer(Sharded<G, P, R>& layer, const OptionsType& = {}, const std::vector<ParamGroup>& = {},
                              SourceLocation = {}) requires(NeedsModel<Sharded<G, P, R>>::is_model);
};

/// The functions of a rule of the library, which the compiled form has in its core.
template <class Rule>
struct CoreFunctions {
    template <StateFormat Format>
    static const RuleFunctions& in();
};

}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

/// Adam with decoupled weight decay over a model of sharded groups, as torch.optim.AdamW computes it.
///     AdamW optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  two states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    28 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
class AdamW : public detail::ElementOptimizer<AdamWOptions, detail::CoreFunctions<rules::AdamWRule>> {
  public:
    using ElementOptimizer::ElementOptimizer;
};

/// AdamW with amsgrad over a model of sharded groups, as torch.optim.AdamW(amsgrad=True) computes it.
///     AMSGrad optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  three states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    36 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
class AMSGrad : public detail::ElementOptimizer<AdamWOptions, detail::CoreFunctions<rules::AmsgradRule>> {
  public:
    using ElementOptimizer::ElementOptimizer;
};

/// Stochastic gradient descent, plain, with momentum or Nesterov's, as torch.optim.SGD computes it.
///     SGD optimizer{model, {.learning_rate = 0.1, .rule = Momentum::nesterov, .momentum = 0.9}};
/// Memory:  one state where there is momentum, none otherwise.
class SGD : public detail::ElementOptimizer<SgdOptions, detail::CoreFunctions<rules::SgdRule>> {
  public:
    using ElementOptimizer::ElementOptimizer;
};

/// Lion, which steps by the sign of a momentum, over a model of sharded groups.
///     Lion optimizer{model, {.learning_rate = 1e-4, .weight_decay = 0.1}};
/// Memory:  one state in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    20 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
/// Every element moves by the learning rate, so clipping acts on the momentum alone.
class Lion : public detail::ElementOptimizer<LionOptions, detail::CoreFunctions<rules::LionRule>> {
  public:
    using ElementOptimizer::ElementOptimizer;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/optim/core_functions.hpp>
#endif
