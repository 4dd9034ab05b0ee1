// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: parameters or gradients that are sharded across groups need an optimizer that is; a replicated one would update what the rank does not hold
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Parameters sharded across groups under an optimizer that is not.
struct Policy : HybridShard<2> {
#ifdef REJECT
    static constexpr AxisPlacements across_groups{.parameters = Placement::sharded};
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
