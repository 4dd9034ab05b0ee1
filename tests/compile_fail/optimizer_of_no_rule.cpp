// SPDX-License-Identifier: Apache-2.0
// expected-error: RuleOptimizer<Rule>: Rule must satisfy OptimizerRule; see optim/rule_optimizer.hpp
#include "model.hpp"

#include <shardkit/optim/rule_optimizer.hpp>

#ifdef REJECT
/// It does not say how many states there are.
struct Rule {
    using Options = sk::SgdOptions;
    using Progress = sk::rules::SgdRule::Progress;
    static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};
    static constexpr void advance(Progress& progress, const Options& /*options*/) { ++progress.steps; }
    template <class A>
    using Update = sk::rules::SgdUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return sk::rules::sgd_update<A>(options, scale);
    }
};
#else
using Rule = sk::rules::SgdRule;
#endif

double rate(sk::rules::RuleOptimizer<Rule>& optimizer) { return optimizer.learning_rate(); }
