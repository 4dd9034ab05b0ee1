// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's parts behind plan.hpp, muon.hpp, moving_average.hpp, rules.hpp and verify.hpp: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/core_own_rule.hpp>
#include <shardkit/compiled/define_parts.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

const Parts& parts_of(const Object& object, SourceLocation where) {
    return part_of<PartsOf>(object, &EngineCore::parts, "plans, checks, averages and Muon", "compiled_nccl_parts.hpp",
                            where);
}
std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count, std::size_t bytes,
                           SourceLocation where) {
    return shardkit::detail::hash_of_part(parameter, part, count, bytes, where);
}
RuleOptimizer* make_own_optimizer(const Groups& groups, const OwnOptions& options,
                                  std::vector<ParamGroup> param_groups, SourceLocation where) {
    return new OptimizerOf<rules::RuleOptimizer<OwnRule, host::Engine, AllPrecisions>>(
        on<const GroupsOf<host::Engine>>(groups, where).model(), options, std::move(param_groups), where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
