// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/rule_optimizer.hpp>

namespace shardkit {

namespace detail {
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
}  // namespace detail

namespace detail SHARDKIT_BUILD {

/// What AdamW, SGD and the others are made of: a rule, the model, its options, and a format of the states.
template <class Rule, class Engine, class Precision, StateFormat Format>
class ElementOptimizer : public rules::RuleOptimizer<rules::RuleIn<Rule, Format>, Engine, Precision> {
    using Rules = rules::RuleOptimizer<rules::RuleIn<Rule, Format>, Engine, Precision>;

  public:
    using Options = typename Rule::Options;

    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit ElementOptimizer(const Model<Engine, Precision>& model, Options options = {},
                              std::vector<ParamGroup> param_groups = {},
                              SourceLocation where = SourceLocation::current())
        : Rules(model, options, std::move(param_groups), where) {}
    /// Keeps the states in `Format`.
    ElementOptimizer(const Model<Engine, Precision>& model, StatesIn<Format> /*states*/, Options options = {},
                     std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current())
        : Rules(model, options, std::move(param_groups), where) {}
    /// Says what to write instead.
    template <class Names = PyTorchNames>
    explicit ElementOptimizer(const Model<Engine, Precision>& model, std::type_identity_t<Names> /*options*/)
        : ElementOptimizer(model) {
        static_cast<void>(NeedsOwnNames<Names>{});
    }
    template <class G, class P, class R>
    explicit ElementOptimizer(Sharded<G, P, Engine, R>& layer, Options = {}, const std::vector<ParamGroup>& = {},
                              SourceLocation = {})
        : ElementOptimizer(needs_model<Model<Engine, Precision>>(layer)) {}
};

}  // namespace detail SHARDKIT_BUILD

}  // namespace shardkit
