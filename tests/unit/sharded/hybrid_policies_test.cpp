// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace toy SHARDKIT_BUILD {
template Ranks train_as<sk::Precision<double>>(Mesh, const FullOverBoth&, const Training&, const Hooks&,
                                               sk::RankOptions, const sk::threads::LaunchOptions&);
}  // namespace toy SHARDKIT_BUILD

namespace hybrid_policies_test {

TEST_CASE("hybrid sharding trains as one rank does, in fp64 to 1e-12") {
    using Dynamic = sk::HybridShard<sk::dynamic>;
    SUBCASE("groups of 2, static, where 2 divides dp") {
        toy::check_in_fp64<sk::HybridShard<2>>(
            [](toy::Extents e) { return e.dp % 2 == 0 ? std::optional(sk::HybridShard<2>{}) : std::nullopt; });
    }
    SUBCASE("groups of 1 and of everybody") {
        for (const toy::Training& training : toy::trainings(3)) {
            for (const std::size_t dp : {1U, 3U, 4U}) {
                toy::check_against_oracle<sk::Precision<double>>({dp}, Dynamic{1}, training, 1e-12);
                toy::check_against_oracle<sk::Precision<double>>({dp}, Dynamic{dp}, training, 1e-12);
            }
        }
    }
    SUBCASE("groups of 4 of 8, dynamic, and of 2 of 4 x cp 2") {
        for (const toy::Training& training : toy::trainings(3)) {
            toy::check_against_oracle<sk::Precision<double>>({8}, Dynamic{4}, training, 1e-12);
            toy::check_against_oracle<sk::Precision<double>>({4, 1, 2}, Dynamic{2}, training, 1e-12);
        }
    }
}

TEST_CASE("sharding over dp x cp trains as one rank does, in fp64 to 1e-12") {
    using OverCp = sk::Axes<sk::DpShard, sk::Cp>;
    SUBCASE("full_shard") { toy::check_in_fp64<sk::ShardOver<sk::FullShard, OverCp>>(); }
    SUBCASE("hybrid_shard") {
        using Hybrid = sk::ShardOver<sk::HybridShard<sk::dynamic>, OverCp>;
        for (const toy::Training& training : toy::trainings(3)) {
            toy::check_against_oracle<sk::Precision<double>>({4, 1, 2}, Hybrid{2}, training, 1e-12);
            toy::check_against_oracle<sk::Precision<double>>({2, 2, 2}, Hybrid{1}, training, 1e-12);
        }
    }
}

TEST_CASE("a hybrid group that does not divide dp is refused with both numbers") {
    CHECK_THROWS_WITH_AS(
        toy::train<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::HybridShard<sk::dynamic>{3}, {}),
        doctest::Contains("'table': policy hybrid_shard with shard groups of 3 does not divide dp = 4"),
        std::invalid_argument);
    CHECK_INVALID_ARGUMENT(sk::HybridShard<sk::dynamic>{0}, "HybridShard: group of 0 ranks, expected at least 1");
}

}  // namespace hybrid_policies_test
