// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: across groups, parameters and optimizer are replicated or sharded, never partial
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Optimizer states that are parts of a sum across groups.
struct Policy : HybridShard<2> {
#ifdef REJECT
    static constexpr AxisPlacements across_groups{.states = Placement::partial};
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
