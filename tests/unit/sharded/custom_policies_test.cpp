// SPDX-License-Identifier: Apache-2.0
#include "unit/sharded/custom_policies.hpp"

#include <doctest/doctest.h>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"

namespace sk = shardkit;

namespace custom_policies_test {

static_assert(sk::ShardPolicy<toy::KeepUntilUpdate> && sk::rules::PolicyRules<toy::KeepUntilUpdate>::hold);
static_assert(sk::ShardPolicy<toy::ReplicateGradients> && sk::rules::PolicyRules<toy::ReplicateGradients>::hold);
static_assert(sk::ShardPolicy<toy::ReduceOnce> && sk::rules::PolicyRules<toy::ReduceOnce>::hold);
static_assert(sk::ShardPolicy<toy::PairedGradOp> && sk::rules::PolicyRules<toy::PairedGradOp>::hold);

TEST_CASE("a user's policies train as one rank does, in fp64 to 1e-12") {
    SUBCASE("sharded parameters that are released at the update") { toy::check_in_fp64<toy::KeepUntilUpdate>(); }
    SUBCASE("replicated gradients, sharded optimizer") { toy::check_in_fp64<toy::ReplicateGradients>(); }
    SUBCASE("sharded parameters, one reduction") { toy::check_in_fp64<toy::ReduceOnce>(); }
    SUBCASE("sharded gradients within pairs") { toy::check_in_fp64<toy::PairedGradOp>(); }
}

}  // namespace custom_policies_test
