// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: sharded parameters need a sharded optimizer; a replicated one would update parameters that the rank does not hold
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Sharded parameters under a replicated optimizer.
struct Policy : FullShard {
#ifdef REJECT
    static constexpr Placement optimizer = Placement::replicated;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
