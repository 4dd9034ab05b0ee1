// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/shard_policy.hpp>

// The rules for a policy `p`, each with the sentence that refuses a violation. The list is a macro because it is used
// twice: a static_assert takes only a literal as its sentence. Undefined below.
#define SHARDKIT_POLICY_RULES(RULE)                                                                                  \
    RULE(p.shard_axes == AxisNames(Axes<DpShard>{}) || p.shard_axes == AxisNames(Axes<DpShard, Cp>{}),               \
         "impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>")                                 \
    RULE(p.parameters != Placement::partial && p.gradients != Placement::partial &&                                  \
             p.optimizer != Placement::partial,                                                                      \
         "impossible policy: parameters, reduced gradients and optimizer are replicated or sharded, never partial")  \
    RULE(p.parameters != Placement::sharded || p.optimizer == Placement::sharded,                                    \
         "impossible policy: sharded parameters need a sharded optimizer; a replicated one would update "            \
         "parameters that the rank does not hold")                                                                   \
    RULE(p.optimizer != Placement::replicated || p.gradients == Placement::replicated,                               \
         "impossible policy: a replicated optimizer needs replicated gradients; with sharded ones it would see one " \
         "shard only")                                                                                               \
    RULE(p.accumulate != Accumulate::reduced || p.gradients == Placement::sharded,                                   \
         "impossible policy: accumulating reduced gradients needs sharded gradients")                                \
    RULE((p.parameters == Placement::sharded) == (p.release != Release::never),                                      \
         "impossible policy: sharded parameters are released at_update or at_reshard, replicated ones never")        \
    RULE(p.across_groups.parameters != Placement::partial && p.across_groups.states != Placement::partial,           \
         "impossible policy: across groups, parameters and optimizer are replicated or sharded, never partial")      \
    RULE(p.across_groups.states == Placement::sharded ||                                                             \
             (p.across_groups.parameters != Placement::sharded && p.across_groups.reduced != Placement::sharded),    \
         "impossible policy: parameters or gradients that are sharded across groups need an optimizer that is; a "   \
         "replicated one would update what the rank does not hold")                                                  \
    RULE((p.across_groups.parameters != Placement::sharded || p.parameters == Placement::sharded) &&                 \
             (p.across_groups.states != Placement::sharded || p.optimizer == Placement::sharded),                    \
         "impossible policy: what is sharded across groups must be sharded within them, as it is their shards that " \
         "are cut")                                                                                                  \
    RULE(p.across_groups.reduced != Placement::sharded || p.accumulate == Accumulate::reduced,                       \
         "impossible policy: gradients that are sharded across groups in every microbatch must be reduced within "   \
         "them in every microbatch")                                                                                 \
    RULE(p.keep == Keep::none ||                                                                                     \
             (p.across_groups.parameters == Placement::sharded && p.release == Release::at_reshard),                 \
         "impossible policy: a secondary shard is kept of parameters that are sharded across groups and released "   \
         "at_reshard")                                                                                               \
    RULE(p.slices == 0 || (p.summation == Summation::tree && std::has_single_bit(p.slices)),                         \
         "impossible policy: slices are a power of two and need Summation::tree")

namespace shardkit::detail {

/// Sets what a policy may state besides the members that each has.
template <class Policy>
constexpr void set_across_groups(rules::PolicyValues& values) {
    if constexpr (requires { Policy::across_groups; }) { values.across_groups = Policy::across_groups; }
    if constexpr (requires { Policy::keep; }) { values.keep = Policy::keep; }
}
/// Returns what the compiler knows of a policy; of one that is chosen at run time, at most its axes.
template <class Policy>
constexpr rules::PolicyValues static_values() {
    rules::PolicyValues known;
    if constexpr (rules::StaticPolicy<Policy>) {
        known.parameters = Policy::parameters;
        known.gradients = Policy::gradients;
        known.optimizer = Policy::optimizer;
        known.accumulate = Policy::accumulate;
        known.release = Policy::release;
        set_across_groups<Policy>(known);
    }
    known.shard_axes = shard_axes_of<Policy>(known.shard_axes);
    return known;
}

}  // namespace shardkit::detail

namespace shardkit::rules {

/// Returns the sentence of the first rule that the values break, or an empty one when the policy is valid.
constexpr std::string_view broken_rule(const PolicyValues& p) {
#define SHARDKIT_POLICY_RULE(holds, sentence) \
    if (!(holds)) { return sentence; }
    SHARDKIT_POLICY_RULES(SHARDKIT_POLICY_RULE)
#undef SHARDKIT_POLICY_RULE
    return {};
}

/// Rejects invalid combinations of placements at compile time, each with its own sentence.
/// @post PolicyRules<P>::hold is true when P is valid
template <ShardPolicy Policy>
struct PolicyRules {
    static constexpr std::string_view broken = broken_rule(detail::static_values<Policy>());
#define SHARDKIT_POLICY_RULE(holds, sentence) static_assert(broken != std::string_view(sentence), sentence);
    SHARDKIT_POLICY_RULES(SHARDKIT_POLICY_RULE)
#undef SHARDKIT_POLICY_RULE
    static constexpr bool hold = broken.empty();
};
#undef SHARDKIT_POLICY_RULES

/// Returns the policy as values on a mesh with `dp` data-parallel ranks. `GroupMesh` checks whether shard_group
/// divides dp.
/// @throws std::invalid_argument with the rule's sentence, for values that are known only at run time
template <ShardPolicy Policy>
constexpr PolicyValues policy_values(const Policy& policy, std::size_t dp,
                                     SourceLocation where = SourceLocation::current()) {
    static_assert(PolicyRules<Policy>::hold);
    PolicyValues values;
    if constexpr (detail::PolicyOfValues<Policy>) {
        values = policy.values(dp);
    } else {
        values.name = policy.name;
        values.parameters = policy.parameters;
        values.gradients = policy.gradients;
        values.optimizer = policy.optimizer;
        values.accumulate = policy.accumulate;
        values.release = policy.release;
        values.shard_group = static_cast<std::size_t>(policy.shard_group(dp));
    }
    detail::set_across_groups<Policy>(values);
    if constexpr (requires { Policy::summation; }) { values.summation = Policy::summation; }
    if constexpr (requires { policy.slices; }) { values.slices = policy.slices; }
    values.shard_axes = detail::shard_axes_of<Policy>(values.shard_axes);
    if constexpr (!StaticPolicy<Policy>) {
        if (const std::string_view broken = broken_rule(values); !broken.empty()) {
            throw_invalid_argument(where, broken);
        }
    }
    return values;
}

}  // namespace shardkit::rules
