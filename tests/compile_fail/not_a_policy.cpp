// SPDX-License-Identifier: Apache-2.0
// expected-error: ShardPolicy: a member is missing; see policy/shard_policy.hpp
#include "model.hpp"

/// FullShard without `release`.
struct Forgetful {
    static constexpr std::string_view name = "forgetful";
    static constexpr sk::Placement parameters = sk::Placement::sharded;
    static constexpr sk::Placement gradients = sk::Placement::sharded;
    static constexpr sk::Placement optimizer = sk::Placement::sharded;
    static constexpr sk::Accumulate accumulate = sk::Accumulate::reduced;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};
struct Whole : Forgetful {
    static constexpr sk::Release release = sk::Release::at_reshard;
};

#ifdef REJECT
using Policy = Forgetful;
#else
using Policy = Whole;
#endif
std::size_t size() { return sizeof(sk::Sharded<Weight, Policy>); }
