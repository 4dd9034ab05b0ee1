// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"

namespace sk = shardkit;

namespace toy SHARDKIT_BUILD {
template Ranks train_as<sk::Precision<double>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                               sk::RankOptions, const sk::threads::LaunchOptions&);
}  // namespace toy SHARDKIT_BUILD

namespace plain_policies_test {

TEST_CASE("the plain policies train as one rank does, in fp64 to 1e-12") {
    SUBCASE("no_shard") { toy::check_in_fp64<sk::NoShard>(); }
    SUBCASE("shard_optimizer") { toy::check_in_fp64<sk::ShardOptimizer>(); }
    SUBCASE("shard_grad_op") { toy::check_in_fp64<sk::ShardGradOp>(); }
    SUBCASE("full_shard") { toy::check_in_fp64<sk::FullShard>(); }
}

}  // namespace plain_policies_test
