// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: gradients that are sharded across groups in every microbatch must be reduced within them in every microbatch
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Gradients that each microbatch reduces across groups, and not within.
struct Policy : HybridOptimizer<2> {
#ifdef REJECT
    static constexpr Accumulate accumulate = Accumulate::unreduced;
    static constexpr AxisPlacements across_groups{.reduced = Placement::sharded, .states = Placement::sharded};
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
