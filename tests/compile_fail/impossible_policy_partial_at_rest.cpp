// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: parameters, reduced gradients and optimizer are replicated or sharded, never partial
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Gradients are summed into a shard, but declared to stay partial.
struct Policy : FullShard {
#ifdef REJECT
    static constexpr Placement gradients = Placement::partial;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
