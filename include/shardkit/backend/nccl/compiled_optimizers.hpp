// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/nccl/compiled_engine.hpp>
#include <shardkit/compiled/define_optimizers.hpp>

// Makes optimizers over NCCL.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

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
RuleOptimizer* make_nccl_optimizer(const Groups& groups, const shardkit::detail::AnyOptions& options,
                                   std::vector<ParamGroup>&& param_groups, SourceLocation where) {
    const auto made_of = [&]<class Rule>() -> RuleOptimizer* {
        if (options.rule != &rule_functions<Rule, format>()) { return nullptr; }
        using P = typename SelectPrecisions<format, AllPrecisions>::type;
        return new OptimizerRef(std::make_unique<rules::RuleOptimizer<rules::RuleIn<Rule, format>, NcclEngine, P>>(
            on<const GroupsOf<NcclEngine>>(groups, where).template model<P>(), options.as<typename Rule::Options>(),
            std::move(param_groups), where));
    };
    if (auto* const made = made_of.template operator()<rules::AdamWRule>()) { return made; }
    if (auto* const made = made_of.template operator()<rules::AmsgradRule>()) { return made; }
    if (auto* const made = made_of.template operator()<rules::SgdRule>()) { return made; }
    if (auto* const made = made_of.template operator()<rules::LionRule>()) { return made; }
    refuse_engine(groups.engine(), engine_core<host::Engine>(), where);  // a rule of the trainer's own
}

}  // namespace SHARDKIT_CHECKED_BUILD
