// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: a secondary shard is kept of parameters that are sharded across groups and released at_reshard
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// A second shard of what lies whole in each group.
struct Policy : HybridOptimizer<2> {
#ifdef REJECT
    static constexpr Keep keep = Keep::secondary;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
