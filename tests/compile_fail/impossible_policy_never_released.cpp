// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: sharded parameters are released at_update or at_reshard, replicated ones never
#include <shardkit/policy/policies.hpp>

using namespace shardkit;

/// Sharded parameters whose full copy is never given back.
struct Policy : FullShard {
#ifdef REJECT
    static constexpr Release release = Release::never;
#endif
};
static_assert(ShardPolicy<Policy> && rules::PolicyRules<Policy>::hold);
