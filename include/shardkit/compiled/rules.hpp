// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/compiled/optimizers.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/list_shards.hpp>

// What rules.hpp is in the compiled form: this file compiles the rule's loops, for the element types of its
// precisions, and the core calls them.

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer made of a rule: see optim/rule_optimizer.hpp.
template <class Rule, class Precision>
class RuleOptimizer : public shardkit::detail::RuleOptimizer<typename Rule::Options> {
    using Base = shardkit::detail::RuleOptimizer<typename Rule::Options>;
    static_assert(shardkit::detail::fits_any_rule<Rule>(),
                  "SHARDKIT_COMPILED: a rule has at most 192 bytes of options, 128 of an update, 4 states and 4 "
                  "products; compile a file with another one without SHARDKIT_COMPILED");

  public:
    RuleOptimizer(const Model<Precision>& model, const typename Rule::Options& options,
                  std::vector<ParamGroup> param_groups, SourceLocation where)
        : Base(model, compiled::make_optimizer(
                          model, {&shardkit::detail::functions_of<Rule, host::detail::RangeUpdates>, options},
                          std::move(param_groups), where)) {}
};

}  // namespace SHARDKIT_BUILD
