// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/precisions.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Makes what an optimizer whose launches know element types has of the groups of a precision.
template <class Rule, class P>
std::unique_ptr<OptimizerGroups<Rule>> groups_of(const MatrixSetup& setup) {
    using Gather = typename P::Gather;
    using Reduction = typename P::Reduction;
    using Own = typename LaunchesOf<Rule, UpdateTypes<typename P::Master, Gather, Reduction>>::type;
    using Stored = typename LaunchesOf<Rule, UpdateTypes<Gather, Gather, Reduction>>::type;
    using Made = LaunchedGroups<Rule, Own, std::conditional_t<can_drop_master<P>, Stored, NoLaunches>>;
    auto made = std::make_unique<Made>(&element_table<P>);
    if constexpr (rules::MatrixRule<Rule>) {
        made->for_each([&](auto& launches) { launches.set_up(setup); });
    }
    return made;
}

/// An optimizer of a rule of whole matrices or with sums.
template <class Rule, class PrecisionType>
class TypedRuleOptimizer : public OptimizerFrame<Rule> {
    static_assert(progress_is_named<Rule>(),
                  "Rule::Progress has more than `steps`: Rule::products must name the rest");
    using Frame = OptimizerFrame<Rule>;

  public:
    using Options = typename Rule::Options;

    /// @param setup  a MatrixRule's, which makes it collective over the world
    TypedRuleOptimizer(const Model<PrecisionType>& model, const Options& options,
                       std::vector<ParamGroup> param_groups, SourceLocation where, const MatrixSetup& setup = {})
        : Frame(model, options, std::move(param_groups), where, batches(setup, PrecisionsOf<PrecisionType>{})) {}

    /// Replaces all hyper-parameters: see RuleOptimizer.
    void set_options(const Options& options, SourceLocation where = SourceLocation::current()) {
        Frame::set_options(options, where);
    }

  private:
    template <class... P>
    static BatchesOf<Rule> batches(const MatrixSetup& setup, Precisions<P...> /*types*/) {
        BatchesOf<Rule> all;
        (all.push_back(groups_of<Rule, P>(setup)), ...);
        return all;
    }
};

}  // namespace shardkit::detail SHARDKIT_BUILD
