// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Shards over tensor-parallel ranks, which hold different parameters.
struct Policy : FullShard {
#ifdef REJECT
    using shard_axes = Axes<DpShard, Tp>;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
