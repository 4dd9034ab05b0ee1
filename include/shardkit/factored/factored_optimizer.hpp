// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/factored/factored_launches.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/typed_rule_optimizer.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

template <rules::FactoredRule Rule, class Types>
struct LaunchesOf<Rule, Types> {
    using type = FactoredLaunches<Rule, Types>;
};

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer of a FactoredRule: Adafactor, or one with a rule of your own.
/// Order:   a step is collective over the world, with one sum of all parameters' numbers for each pass
/// Memory:  what the rule keeps and its sums on every rank, the directions of the largest group, and the rule's
/// states
///          for the elements that this rank updates; `bytes_of_passes` says how much beside those
template <class Rule, class Precision = DefaultPrecision<float>>
class FactoredOptimizer : public detail::TypedRuleOptimizer<Rule, Precision> {
    static_assert(FactoredRule<Rule>,
                  "FactoredOptimizer<Rule, ...>: Rule must satisfy FactoredRule; see optim/factored_rule.hpp");

  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit FactoredOptimizer(const Model<Precision>& model, const typename Rule::Options& options = {},
                               std::vector<ParamGroup> param_groups = {},
                               SourceLocation where = SourceLocation::current())
        : detail::TypedRuleOptimizer<Rule, Precision>(model, options, std::move(param_groups), where) {}

    /// The bytes of this rank's buffers for what is kept, the sums and the directions. They come on top of a
    /// planner::MemoryPlan, as planner::FactoredPlan says.
    std::size_t bytes_of_passes() { return this->bytes_beside_states(); }
};

}  // namespace shardkit::rules SHARDKIT_BUILD
