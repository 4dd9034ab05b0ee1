// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/policy_traits.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/policy/shard_over.hpp>

#include "../thrown_message.hpp"

namespace {

using namespace shardkit;
using enum Placement;

/// One line of the design's table of policies, in its columns' order.
struct Row {
    std::string_view name;
    Placement parameters;
    Accumulate microbatches_summed;
    Placement gradients;
    Placement optimizer;
    Release freed;
};
constexpr bool is(const PolicyTraits& traits, const Row& row) {
    return traits.name == row.name && traits.parameters == row.parameters &&
           traits.accumulate == row.microbatches_summed && traits.gradients == row.gradients &&
           traits.optimizer == row.optimizer && traits.release == row.freed;
}
template <class Policy>
constexpr PolicyTraits traits(const Policy& policy = {}, std::size_t dp = 8, std::size_t cp = 3) {
    return policy_traits(policy, dp, cp);
}

constexpr Row no_shard{"no_shard", replicated, Accumulate::unreduced, replicated, replicated, Release::never};
constexpr Row stage1{"shard_optimizer", replicated, Accumulate::unreduced, sharded, sharded, Release::never};
constexpr Row stage2{"shard_grad_op", replicated, Accumulate::reduced, sharded, sharded, Release::never};
constexpr Row stage3{"full_shard", sharded, Accumulate::reduced, sharded, sharded, Release::at_reshard};
constexpr Row hybrid{"hybrid_shard", sharded, Accumulate::reduced, sharded, sharded, Release::at_reshard};

static_assert(is(traits<NoShard>(), no_shard));
static_assert(is(traits<ShardOptimizer>(), stage1));
static_assert(is(traits<ShardGradOp>(), stage2));
static_assert(is(traits<FullShard>(), stage3));
static_assert(is(traits<HybridShard<4>>(), hybrid));
static_assert(is(traits(HybridShard<dynamic>{4}), hybrid));

// Who shares one copy: the whole data axis, or groups of N whatever the data axis is.
static_assert(traits<NoShard>().shard_group == 8 && traits<ShardOptimizer>().shard_group == 8);
static_assert(traits<ShardGradOp>().shard_group == 8 && traits<FullShard>().shard_group == 8);
static_assert(traits<FullShard>({}, 6).shard_group == 6 && traits<FullShard>({}, 1).shard_group == 1);
static_assert(traits<HybridShard<4>>().shard_group == 4 && traits<HybridShard<4>>({}, 64).shard_group == 4);
static_assert(traits(HybridShard<dynamic>{2}).shard_group == 2 && traits<HybridShard<dynamic>>().shard_group == 1);
static_assert(HybridShard<4>::static_group == 4);

template <class P>
concept KnowsItsGroup = requires {
    P::static_group;
};
static_assert(!KnowsItsGroup<HybridShard<dynamic>> && !KnowsItsGroup<FullShard>);

// Plain policies shard over the data axis alone; what remains are its replicas and cp.
static_assert(std::is_same_v<ShardAxes<FullShard>, Axes<DpShard>>);
static_assert(std::is_same_v<ReplicaAxes<FullShard>, Axes<DpReplicate, Cp>>);
static_assert(std::is_same_v<ReplicaAxes<HybridShard<2>>, Axes<DpReplicate, Cp>>);
static_assert(traits<FullShard>().cp_shards == 1 && traits<NoShard>().cp_shards == 1);

// ShardOver keeps everything but the axes.
using FullOverBoth = ShardOver<FullShard, Axes<DpShard, Cp>>;
using HybridOverBoth = ShardOver<HybridShard<dynamic>, Axes<DpShard, Cp>>;
static_assert(ShardPolicy<FullOverBoth> && PolicyRules<FullOverBoth>::hold);
static_assert(is(traits<FullOverBoth>(), stage3) && is(traits(HybridOverBoth{2}), hybrid));
static_assert(traits<FullOverBoth>().cp_shards == 3 && traits<FullOverBoth>().shard_group == 8);
static_assert(traits(HybridOverBoth{2}).cp_shards == 3 && traits(HybridOverBoth{2}).shard_group == 2);
static_assert(std::is_same_v<ShardAxes<FullOverBoth>, Axes<DpShard, Cp>>);
static_assert(std::is_same_v<ReplicaAxes<FullOverBoth>, Axes<DpReplicate>>);
static_assert(std::is_same_v<ShardAxes<ShardOver<FullShard, Axes<DpShard>>>, Axes<DpShard>>);
static_assert(ShardOver<HybridShard<4>, Axes<DpShard, Cp>>::static_group == 4);
static_assert(traits<ShardOver<ShardOptimizer, Axes<DpShard, Cp>>>().cp_shards == 3);

// Every policy of the library is possible.
static_assert(PolicyRules<NoShard>::hold && PolicyRules<ShardOptimizer>::hold && PolicyRules<ShardGradOp>::hold);
static_assert(PolicyRules<FullShard>::hold && PolicyRules<HybridShard<3>>::hold);
static_assert(PolicyRules<HybridShard<dynamic>>::hold && PolicyRules<HybridOverBoth>::hold);

/// Possible combinations that the library has no policy of its own for.
struct AllReduceThenShard : ShardOptimizer {  // gradients replicated, the update sharded
    static constexpr Placement gradients = replicated;
};
struct KeepUntilUpdate : FullShard {  // gathered once a step
    static constexpr Release release = Release::at_update;
};
struct ReduceOnce : FullShard {
    static constexpr Accumulate accumulate = Accumulate::unreduced;
};
static_assert(PolicyRules<AllReduceThenShard>::hold && PolicyRules<KeepUntilUpdate>::hold &&
              PolicyRules<ReduceOnce>::hold);

}  // namespace

TEST_CASE("DynamicPolicy: has the placements, name and groups of what it holds, whatever dp is") {
    const auto same = [](const auto& policy) {
        const DynamicPolicy chosen(policy);
        for (const std::size_t dp : {1U, 2U, 6U, 64U}) {
            const PolicyTraits given = policy_traits(chosen, dp, 3);
            const PolicyTraits expected = policy_traits(policy, dp, 3);
            CHECK(given.shard_group == expected.shard_group);
            CHECK(given.cp_shards == 1);
            CHECK(is(given, {expected.name, expected.parameters, expected.accumulate, expected.gradients,
                             expected.optimizer, expected.release}));
        }
    };
    same(NoShard{});
    same(ShardOptimizer{});
    same(ShardGradOp{});
    same(FullShard{});
    same(HybridShard<4>{});
    same(HybridShard<dynamic>{3});
    same(AllReduceThenShard{});
    // Over cp as well, as any other policy.
    const ShardOver<DynamicPolicy, Axes<DpShard, Cp>> both{FullShard{}};
    CHECK(policy_traits(both, 8, 3).cp_shards == 3);
    CHECK(policy_traits(both, 8, 3).shard_group == 8);
    CHECK(is(policy_traits(both, 8, 3), stage3));
}

TEST_CASE("HybridShard: a group of no ranks is refused") {
    CHECK(thrown_message<std::invalid_argument>([] { HybridShard<dynamic>{0}; }) ==
          "HybridShard: group of 0 ranks, expected at least 1");
    CHECK(HybridShard<dynamic>{5}.shard_group(10) == 5);
    CHECK(HybridShard<2>{}.shard_group(10) == 2);
}
