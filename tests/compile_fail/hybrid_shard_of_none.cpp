// SPDX-License-Identifier: Apache-2.0
// expected-error: HybridShard<N>: N must be at least 1
#include <shardkit/policy/policies.hpp>

#ifdef REJECT
constexpr std::size_t group = 0;
#else
constexpr std::size_t group = 1;
#endif
static_assert(shardkit::HybridShard<group>{}.shard_group(4) == group);
