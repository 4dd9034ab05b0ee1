// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

struct Policy : FullShard {
#ifdef REJECT
    using shard_axes = Axes<DpShard, Dp>;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
