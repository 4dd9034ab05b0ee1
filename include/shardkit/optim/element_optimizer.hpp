// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/optimizers.hpp>
#else
#include <shardkit/optim/rule_optimizer.hpp>
#endif
#include <shardkit/optim/options.hpp>
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

namespace shardkit::detail SHARDKIT_BUILD {

/// What AdamW, SGD and the others are made of: a rule, the model, its options, and a format of the states.
template <class Rule, class OptionsType, class Precision, StateFormat Format>
class ElementOptimizer : public RuleOptimizerIn<Rule, OptionsType, Precision, Format> {
    using Base = RuleOptimizerIn<Rule, OptionsType, Precision, Format>;

  public:
    using Options = OptionsType;

    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit ElementOptimizer(const Model<Precision>& model, Options options = {},
                              std::vector<ParamGroup> param_groups = {},
                              SourceLocation where = SourceLocation::current())
        : Base(model, options, std::move(param_groups), where) {}
    /// Keeps the states in `Format`.
    ElementOptimizer(const Model<Precision>& model, StatesIn<Format> /*states*/, Options options = {},
                     std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current())
        : Base(model, options, std::move(param_groups), where) {}
    /// Says what to write instead.
    template <class Names = PyTorchNames>
    explicit ElementOptimizer(const Model<Precision>& model, std::type_identity_t<Names> /*options*/)
        : ElementOptimizer(model) {
        static_cast<void>(NeedsOwnNames<Names>{});
    }
    template <class G, class P, class R>
    explicit ElementOptimizer(Sharded<G, P, R>& layer, auto&&...) requires(NeedsModel<Sharded<G, P, R>>::is_model);
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Adam with decoupled weight decay over a model of sharded groups, as torch.optim.AdamW computes it.
///     AdamW optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  two states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    28 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
template <class Precision = DefaultPrecision<float>, StateFormat Format = StateFormat::full>
class AdamW : public detail::ElementOptimizer<rules::AdamWRule, AdamWOptions, Precision, Format> {
    using Base = detail::ElementOptimizer<rules::AdamWRule, AdamWOptions, Precision, Format>;

  public:
    using Base::Base;
    template <class Names = detail::PyTorchNames>
    explicit AdamW(const Model<Precision>& model, std::type_identity_t<Names> names) : Base(model, names) {}
};

/// AdamW with amsgrad over a model of sharded groups, as torch.optim.AdamW(amsgrad=True) computes it.
///     AMSGrad optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  three states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    36 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
template <class Precision = DefaultPrecision<float>, StateFormat Format = StateFormat::full>
class AMSGrad : public detail::ElementOptimizer<rules::AmsgradRule, AdamWOptions, Precision, Format> {
    using Base = detail::ElementOptimizer<rules::AmsgradRule, AdamWOptions, Precision, Format>;

  public:
    using Base::Base;
    template <class Names = detail::PyTorchNames>
    explicit AMSGrad(const Model<Precision>& model, std::type_identity_t<Names> names) : Base(model, names) {}
};

/// Stochastic gradient descent, plain, with momentum or Nesterov's, as torch.optim.SGD computes it.
///     SGD optimizer{model, {.learning_rate = 0.1, .rule = Momentum::nesterov, .momentum = 0.9}};
/// Memory:  one state where there is momentum, none otherwise.
template <class Precision = DefaultPrecision<float>, StateFormat Format = StateFormat::full>
class SGD : public detail::ElementOptimizer<rules::SgdRule, SgdOptions, Precision, Format> {
    using Base = detail::ElementOptimizer<rules::SgdRule, SgdOptions, Precision, Format>;

  public:
    using Base::Base;
    template <class Names = detail::PyTorchNames>
    explicit SGD(const Model<Precision>& model, std::type_identity_t<Names> names) : Base(model, names) {}
};

/// Lion, which steps by the sign of a momentum, over a model of sharded groups.
///     Lion optimizer{model, {.learning_rate = 1e-4, .weight_decay = 0.1}};
/// Memory:  one state in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    20 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
/// Every element moves by the learning rate, so clipping acts on the momentum
/// alone.
template <class Precision = DefaultPrecision<float>, StateFormat Format = StateFormat::full>
class Lion : public detail::ElementOptimizer<rules::LionRule, LionOptions, Precision, Format> {
    using Base = detail::ElementOptimizer<rules::LionRule, LionOptions, Precision, Format>;

  public:
    using Base::Base;
    template <class Names = detail::PyTorchNames>
    explicit Lion(const Model<Precision>& model, std::type_identity_t<Names> names) : Base(model, names) {}
};

// The arguments are types, which must not be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define SHARDKIT_GUIDES(Name, Options)                                                                    \
    template <class Precision, StateFormat Format>                                                        \
    Name(const Model<Precision>&, StatesIn<Format>, Options = {}, const std::vector<ParamGroup>& = {},    \
         SourceLocation = {}) -> Name<Precision, Format>;                                                 \
    template <class Precision>                                                                            \
    Name(const Model<Precision>&, Options = {}, const std::vector<ParamGroup>& = {}, SourceLocation = {}) \
        -> Name<Precision>;                                                                               \
    template <class G, class P, class R>                                                                  \
    Name(Sharded<G, P, R>&, Options = {}, const std::vector<ParamGroup>& = {}, SourceLocation = {})       \
        -> Name<std::enable_if_t<detail::NeedsModel<Sharded<G, P, R>>::is_model>>;
SHARDKIT_GUIDES(AdamW, AdamWOptions)
SHARDKIT_GUIDES(AMSGrad, AdamWOptions)
SHARDKIT_GUIDES(SGD, SgdOptions)
SHARDKIT_GUIDES(Lion, LionOptions)
// NOLINTEND(bugprone-macro-parentheses)
#undef SHARDKIT_GUIDES

}  // namespace SHARDKIT_BUILD
