// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/factored/factored_frame.hpp>
#include <shardkit/factored/factored_functions.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/spi/updates.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer of a FactoredRule: Adafactor, or one with a rule of your own.
/// Order:   a step is collective over the world, with one sum of all parameters' numbers for each pass
/// Memory:  what the rule keeps and its sums on every rank, the directions of the largest group, and the rule's
///          states for the elements that this rank updates; `bytes_of_passes` says how much beside those
template <class Rule>
class FactoredOptimizer : public detail::RuleOptimizer<typename Rule::Options, detail::FactoredFrame> {
    using Base = detail::RuleOptimizer<typename Rule::Options, detail::FactoredFrame>;
    static_assert(
        OptimizerRule<Rule> && FactoredRule<Rule>,
        "FactoredOptimizer<Rule>: Rule must satisfy OptimizerRule and FactoredRule; see optim/factored_rule.hpp");
    static_assert(
        detail::progress_is_named<Rule>() && detail::fits_any_rule<Rule>(),
        "FactoredOptimizer<Rule>: Rule::products must name all that Rule::Progress has beside `steps`, and a "
        "rule has at most 192 bytes of options, 128 of an update, 4 states and 4 products");

  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit FactoredOptimizer(const Model& model, const typename Rule::Options& options = {},
                               std::vector<ParamGroup> param_groups = {},
                               SourceLocation where = SourceLocation::current())
        : Base(model, {&detail::functions_of<Rule, host::AnyKernels::Loops>, options},
               detail::factored_functions_of<Rule>, std::move(param_groups), where) {}
};

}  // namespace shardkit::rules SHARDKIT_BUILD
