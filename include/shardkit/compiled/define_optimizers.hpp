// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/compiled/core_model.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

// Defines make_optimizer() for the core's rules, on the engines of the host and on others whose core has them.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <Rule rule>
struct RuleBehind;
template <>
struct RuleBehind<Rule::adamw> {
    using type = rules::AdamWRule;
};
template <>
struct RuleBehind<Rule::amsgrad> {
    using type = rules::AmsgradRule;
};
template <>
struct RuleBehind<Rule::sgd> {
    using type = rules::SgdRule;
};
template <>
struct RuleBehind<Rule::lion> {
    using type = rules::LionRule;
};

/// The precisions whose groups can have states in a format: others than full ones are those of updates in fp32.
template <StateFormat format, class All, class Kept = Precisions<>>
struct SelectPrecisions {
    using type = Kept;
};
template <StateFormat format, class P, class... Rest, class... Kept>
struct SelectPrecisions<format, Precisions<P, Rest...>, Precisions<Kept...>>
    : SelectPrecisions<
          format, Precisions<Rest...>,
          std::conditional_t<format == StateFormat::full || std::is_same_v<Arithmetic<typename P::Master>, float>,
                             Precisions<Kept..., P>, Precisions<Kept...>>> {};
template <StateFormat format>
using PrecisionsWith = typename SelectPrecisions<format, AllPrecisions>::type;

template <class Engine, Rule rule, StateFormat format>
RuleOptimizer* make_optimizer_on(const Groups& groups, const void* options, std::vector<ParamGroup> param_groups,
                                 SourceLocation where) {
    using R = typename RuleBehind<rule>::type;
    using P = PrecisionsWith<format>;
    return new OptimizerOf<shardkit::detail::ElementOptimizer<R, Engine, P, format>>(
        on<const GroupsOf<Engine>>(groups, where).template model<P>(),
        *static_cast<const typename R::Options*>(options), std::move(param_groups), where);
}
template <Rule rule, StateFormat format>
RuleOptimizer* make_optimizer(const Groups& groups, const void* options, std::vector<ParamGroup> param_groups,
                              SourceLocation where) {
    const EngineCore& core = groups.engine();
    if (&core == &engine_core<host::Engine>()) {
        return make_optimizer_on<host::Engine, rule, format>(groups, options, std::move(param_groups), where);
    }
    const auto make = core.make_optimizer[static_cast<std::size_t>(format)];
    if (make == nullptr) { refuse_part(core, "optimizers with such states", "compiled_nccl_states.hpp", where); }
    return make(rule, groups, options, std::move(param_groups), where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#define SHARDKIT_COMPILED_OPTIMIZER(rule, format)                                                      \
    template shardkit::compiled::RuleOptimizer*                                                        \
    shardkit::compiled::make_optimizer<shardkit::compiled::Rule::rule, shardkit::StateFormat::format>( \
        const shardkit::compiled::Groups&, const void*, std::vector<shardkit::ParamGroup>,             \
        shardkit::SourceLocation);
/// Instantiates the optimizers whose states are stored in a format.
#define SHARDKIT_COMPILED_OPTIMIZERS(format)     \
    SHARDKIT_COMPILED_OPTIMIZER(adamw, format)   \
    SHARDKIT_COMPILED_OPTIMIZER(amsgrad, format) \
    SHARDKIT_COMPILED_OPTIMIZER(sgd, format)     \
    SHARDKIT_COMPILED_OPTIMIZER(lion, format)
