// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: sharded parameters are released at_update or at_reshard, replicated ones never
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Replicated parameters have no full copy beside them to give back.
struct Policy : NoShard {
#ifdef REJECT
    static constexpr Release release = Release::at_reshard;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
