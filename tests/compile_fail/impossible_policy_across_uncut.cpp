// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: what is sharded across groups must be sharded within them, as it is their shards that are cut
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Optimizer states that are sharded across groups alone.
struct Policy : NoShard {
#ifdef REJECT
    static constexpr AxisPlacements across_groups{.states = Placement::sharded};
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
