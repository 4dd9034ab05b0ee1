// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: a replicated optimizer needs replicated gradients; with sharded ones it would see one shard only
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// A replicated optimizer fed with one shard of the gradients.
struct Policy : NoShard {
#ifdef REJECT
    static constexpr Placement gradients = Placement::sharded;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
