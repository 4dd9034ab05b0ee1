// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/group_mesh.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/policy/policy_rules.hpp>

#include "../thrown_message.hpp"

namespace policies_test {

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
constexpr bool is(const rules::PolicyValues& traits, const Row& row) {
    return traits.name == row.name && traits.parameters == row.parameters &&
           traits.accumulate == row.microbatches_summed && traits.gradients == row.gradients &&
           traits.optimizer == row.optimizer && traits.release == row.freed;
}
template <class Policy>
constexpr rules::PolicyValues traits(const Policy& policy = {}, std::size_t dp = 8) {
    return rules::policy_values(policy, dp);
}
/// Shards on a mesh with cp 3 and tp 2.
template <class Policy>
constexpr std::size_t shards(const Policy& policy = {}) {
    const AxisGrid mesh{{"dp", 8}, {"tp", 2}, {"cp", 3}};
    const rules::PolicyValues values = rules::policy_values(policy, 8);
    return detail::GroupMesh(mesh, values, false, "mine", {}).ranks(detail::Over::shards);
}
/// The axes of a group on a mesh of 8 ranks of dp.
template <class Policy>
constexpr AxisNames axes_of(detail::Over over) {
    return detail::GroupMesh({{"dp", 8}, {"tp", 2}, {"cp", 3}}, traits<Policy>(), false, "mine", {}).axes(over);
}
/// The data axes that remain: across them, shards are replicas of each other.
template <class Policy>
constexpr AxisNames replica_axes = axes_of<Policy>(detail::Over::replicas);

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

// Each policy as its two rows of parameters, reduced gradients and states.
constexpr bool has_rows(const rules::PolicyValues& values, AxisPlacements within, AxisPlacements across) {
    return values.within_groups() == within && values.across_groups == across;
}
constexpr AxisPlacements replicas{replicated, partial, replicated};
static_assert(has_rows(traits<NoShard>(), replicas, replicas));
static_assert(has_rows(traits<ShardOptimizer>(), {replicated, partial, sharded}, replicas));
static_assert(has_rows(traits<ShardGradOp>(), {replicated, sharded, sharded}, replicas));
static_assert(has_rows(traits<FullShard>(), {sharded, sharded, sharded}, replicas));
static_assert(has_rows(traits<HybridShard<4>>(), {sharded, sharded, sharded}, replicas));
static_assert(has_rows(traits<HybridOptimizer<4>>(), {sharded, sharded, sharded}, {replicated, partial, sharded}));
static_assert(has_rows(traits<SecondaryShard<4>>(), {sharded, sharded, sharded}, {sharded, sharded, sharded}));
static_assert(traits<SecondaryShard<4>>().keep == Keep::secondary && traits<HybridOptimizer<4>>().keep == Keep::none);
static_assert(has_rows(traits(TreeSums<HybridOptimizer<dynamic>>{HybridOptimizer<dynamic>{2}}),
                       {sharded, sharded, sharded}, {replicated, partial, sharded}));

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
static_assert(traits<FullShard>().shard_axes == Axes<DpShard>{});
static_assert(replica_axes<FullShard> == Axes<DpReplicate, Cp>{});
static_assert(replica_axes<HybridShard<2>> == Axes<DpReplicate, Cp>{});
static_assert(shards<FullShard>() == 8 && shards<NoShard>() == 8 && shards<HybridShard<4>>() == 4);
static_assert(axes_of<HybridShard<2>>(detail::Over::data) == DataAxes{});
static_assert(axes_of<FullShard>(detail::Over::tp) == Axes<Tp>{});

// ShardOver keeps everything but the axes.
using FullOverBoth = ShardOver<FullShard, Axes<DpShard, Cp>>;
using HybridOverBoth = ShardOver<HybridShard<dynamic>, Axes<DpShard, Cp>>;
static_assert(ShardPolicy<FullOverBoth> && rules::PolicyRules<FullOverBoth>::hold);
static_assert(is(traits<FullOverBoth>(), stage3) && is(traits(HybridOverBoth{2}), hybrid));
static_assert(shards<FullOverBoth>() == 8 * 3 && traits<FullOverBoth>().shard_group == 8);
static_assert(shards(HybridOverBoth{2}) == 2 * 3 && traits(HybridOverBoth{2}).shard_group == 2);
static_assert(traits<FullOverBoth>().shard_axes == Axes<DpShard, Cp>{});
static_assert(replica_axes<FullOverBoth> == Axes<DpReplicate>{});
static_assert(traits<ShardOver<FullShard, Axes<DpShard>>>().shard_axes == Axes<DpShard>{});
static_assert(ShardOver<HybridShard<4>, Axes<DpShard, Cp>>::static_group == 4);
static_assert(shards<ShardOver<ShardOptimizer, Axes<DpShard, Cp>>>() == 24);

// Every policy of the library is possible.
static_assert(rules::PolicyRules<NoShard>::hold && rules::PolicyRules<ShardOptimizer>::hold &&
              rules::PolicyRules<ShardGradOp>::hold);
static_assert(rules::PolicyRules<FullShard>::hold && rules::PolicyRules<HybridShard<3>>::hold);
static_assert(rules::PolicyRules<HybridOptimizer<3>>::hold && rules::PolicyRules<SecondaryShard<3>>::hold);
static_assert(rules::PolicyRules<HybridOptimizer<dynamic>>::hold &&
              rules::PolicyRules<SecondaryShard<dynamic>>::hold);
static_assert(rules::PolicyRules<HybridShard<dynamic>>::hold && rules::PolicyRules<HybridOverBoth>::hold);

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
static_assert(rules::PolicyRules<AllReduceThenShard>::hold && rules::PolicyRules<KeepUntilUpdate>::hold &&
              rules::PolicyRules<ReduceOnce>::hold);

}  // namespace

TEST_CASE("named_policy: each policy of the library by its name, and no other") {
    CHECK(named_policy("no_shard").values(4).parameters == Placement::replicated);
    for (const std::string_view name : {"no_shard", "shard_optimizer", "shard_grad_op", "full_shard"}) {
        CHECK(named_policy(name).name() == name);
        CHECK(named_policy(name).shard_group(6) == 6);
    }
    CHECK(named_policy("hybrid_shard:2").name() == "hybrid_shard");
    CHECK(named_policy("hybrid_shard:2").shard_group(6) == 2);
    CHECK(named_policy("hybrid_shard:12").shard_group(24) == 12);
    CHECK(named_policy("hybrid_optimizer:2").values() == traits(HybridOptimizer<dynamic>{2}));
    CHECK(named_policy("secondary_shard:3").values() == traits(SecondaryShard<dynamic>{3}));
    for (const std::string_view name :
         {"", "fsdp", "full_shard ", "Full_shard", "hybrid_shard", "hybrid_shard:", "hybrid_shard:0",
          "hybrid_shard:-2", "hybrid_shard:2x", "hybrid_optimizer", "secondary_shard:", "full_shard:2",
          "hybrid_shard:+2", "hybrid_shard: 2", "hybrid_shard:99999999999999999999"}) {
        CAPTURE(name);
        const std::string refused = thrown_message<std::invalid_argument>([&] {
            named_policy(name, {"user.cpp", 7});
        });
        CHECK(
            refused.starts_with("named_policy: no policy is called '" + std::string(name) + "'; expected no_shard"));
        CHECK(refused.ends_with("(user.cpp:7)"));
    }
}

TEST_CASE("DynamicPolicy: has the placements, name and groups of what it holds, whatever dp is") {
    const auto same = [](const auto& policy) {
        const DynamicPolicy chosen(policy);
        for (const std::size_t dp : {1U, 2U, 6U, 64U}) {
            const rules::PolicyValues given = rules::policy_values(chosen, dp);
            const rules::PolicyValues expected = rules::policy_values(policy, dp);
            CHECK(given.shard_group == expected.shard_group);
            CHECK(chosen.shard_group(dp) == expected.shard_group);
            CHECK(given.shard_axes == expected.shard_axes);
            CHECK(chosen.name() == expected.name);
            CHECK(given == expected);
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
    same(HybridOptimizer<dynamic>{3});
    same(SecondaryShard<2>{});
    same(AllReduceThenShard{});
    same(HybridOverBoth{2});
    // Over cp as well, as any other policy.
    const ShardOver<DynamicPolicy, Axes<DpShard, Cp>> both{FullShard{}};
    CHECK(shards(both) == 24);
    CHECK(rules::policy_values(both, 8).shard_group == 8);
    CHECK(is(rules::policy_values(both, 8), stage3));
}

// The rules as a function of values, each sentence by name: types have them in tests/compile_fail.
namespace {
constexpr const char* never_partial =
    "impossible policy: parameters, reduced gradients and optimizer are replicated or sharded, never partial";
constexpr const char* released =
    "impossible policy: sharded parameters are released at_update or at_reshard, replicated ones never";
constexpr const char* across_partial =
    "impossible policy: across groups, parameters and optimizer are replicated or sharded, never partial";
constexpr const char* across_updates =
    "impossible policy: parameters or gradients that are sharded across groups need an optimizer that is; a "
    "replicated one would update what the rank does not hold";
constexpr const char* across_cuts =
    "impossible policy: what is sharded across groups must be sharded within them, as it is their shards that are "
    "cut";
constexpr const char* across_each =
    "impossible policy: gradients that are sharded across groups in every microbatch must be reduced within them in "
    "every microbatch";
constexpr const char* second =
    "impossible policy: a secondary shard is kept of parameters that are sharded across "
    "groups and released at_reshard";
constexpr const char* over_data = "impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>";

struct Broken {
    rules::PolicyValues values;
    std::string_view sentence;
};
template <class Policy, class Change>
constexpr Broken broken(std::string_view sentence, Change change) {
    Broken made{rules::policy_values(Policy{}, 4), sentence};
    change(made.values);
    return made;
}
constexpr std::array impossible{
    broken<NoShard>(never_partial, [](rules::PolicyValues& p) { p.parameters = partial; }),
    broken<FullShard>(never_partial, [](rules::PolicyValues& p) { p.gradients = partial; }),
    broken<NoShard>(never_partial, [](rules::PolicyValues& p) { p.optimizer = partial; }),
    broken<FullShard>("impossible policy: sharded parameters need a sharded optimizer; a replicated one would update "
                      "parameters that the rank does not hold",
                      [](rules::PolicyValues& p) { p.optimizer = replicated; }),
    broken<NoShard>("impossible policy: a replicated optimizer needs replicated gradients; with sharded ones it "
                    "would see one shard only",
                    [](rules::PolicyValues& p) { p.gradients = sharded; }),
    broken<FullShard>("impossible policy: accumulating reduced gradients needs sharded gradients",
                      [](rules::PolicyValues& p) { p.gradients = replicated; }),
    broken<FullShard>(released, [](rules::PolicyValues& p) { p.release = Release::never; }),
    broken<NoShard>(released, [](rules::PolicyValues& p) { p.release = Release::at_reshard; }),
    broken<NoShard>(released, [](rules::PolicyValues& p) { p.release = Release::at_update; }),
    broken<FullShard>(over_data, [](rules::PolicyValues& p) { p.shard_axes = Axes<DpShard, Tp>{}; }),
    broken<FullShard>(over_data, [](rules::PolicyValues& p) { p.shard_axes = Axes<DpReplicate>{}; }),
    broken<FullShard>(over_data, [](rules::PolicyValues& p) { p.shard_axes = Axes<Cp, DpShard>{}; }),
    broken<FullShard>(over_data, [](rules::PolicyValues& p) { p.shard_axes = Axes<>{}; }),
    broken<HybridShard<2>>(across_partial, [](rules::PolicyValues& p) { p.across_groups.parameters = partial; }),
    broken<HybridShard<2>>(across_partial, [](rules::PolicyValues& p) { p.across_groups.states = partial; }),
    broken<HybridShard<2>>(across_updates, [](rules::PolicyValues& p) { p.across_groups.parameters = sharded; }),
    broken<HybridShard<2>>(across_updates, [](rules::PolicyValues& p) { p.across_groups.reduced = sharded; }),
    broken<NoShard>(across_cuts, [](rules::PolicyValues& p) { p.across_groups.states = sharded; }),
    broken<ShardGradOp>(across_cuts,
                        [](rules::PolicyValues& p) {
                            p.across_groups = {sharded, partial, sharded};
                        }),
    broken<ShardOptimizer>(across_each,
                           [](rules::PolicyValues& p) {
                               p.across_groups = {replicated, sharded, sharded};
                           }),
    broken<HybridOptimizer<2>>(second, [](rules::PolicyValues& p) { p.keep = Keep::secondary; }),
    broken<SecondaryShard<2>>(second, [](rules::PolicyValues& p) { p.release = Release::at_update; }),
};
static_assert(std::all_of(impossible.begin(), impossible.end(),
                          [](const Broken& b) { return rules::broken_rule(b.values) == b.sentence; }));
static_assert(rules::broken_rule(rules::PolicyValues{}).empty() &&
              rules::broken_rule(traits<HybridOverBoth>()).empty());
static_assert(rules::broken_rule(traits<AllReduceThenShard>()).empty() &&
              rules::broken_rule(traits<KeepUntilUpdate>()).empty());
}  // namespace

TEST_CASE(
    "DynamicPolicy: made from values it refuses what no type can be, by the same sentence and at the user's line") {
    for (const Broken& b : impossible) {
        const std::string message = thrown_message<std::invalid_argument>([&] { DynamicPolicy{b.values}; });
        CHECK(message.starts_with("DynamicPolicy '" + std::string(b.values.name) + "': " + std::string(b.sentence)));
        CHECK(message.find("policies_test.cpp:") != std::string::npos);
    }
}

TEST_CASE("DynamicPolicy: made from values it is these, and every possible combination is taken") {
    std::size_t possible = 0;
    for (const Placement parameters : {replicated, sharded}) {
        for (const Placement gradients : {replicated, sharded}) {
            for (const Placement optimizer : {replicated, sharded}) {
                for (const Accumulate accumulate : {Accumulate::unreduced, Accumulate::reduced}) {
                    for (const Release release : {Release::never, Release::at_update, Release::at_reshard}) {
                        const rules::PolicyValues given{"mine",     parameters, gradients, optimizer,
                                                        accumulate, release,    3,         Axes<DpShard, Cp>{}};
                        if (!rules::broken_rule(given).empty()) { continue; }
                        ++possible;
                        const DynamicPolicy policy(given);
                        CHECK(is(rules::policy_values(policy, 6),
                                 {"mine", parameters, accumulate, gradients, optimizer, release}));
                        CHECK(policy.shard_group(6) == 3);
                        CHECK(policy.values().shard_axes == Axes<DpShard, Cp>{});
                    }
                }
            }
        }
    }
    // Replicated parameters: DDP, all-reduced then sharded, stages 1 and 2. Sharded: three kinds of gradients, each
    // released in two ways.
    CHECK(possible == 4 + 3 * 2);
}

TEST_CASE("a policy with members that are known at run time only is judged when its values are asked for") {
    struct Chosen {
        std::string_view name = "chosen";
        Placement parameters = replicated;
        Placement gradients = sharded;
        Placement optimizer = sharded;
        Accumulate accumulate = Accumulate::reduced;
        Release release = Release::never;
        static std::size_t shard_group(std::size_t dp) { return dp; }
    };
    static_assert(ShardPolicy<Chosen> && !rules::StaticPolicy<Chosen>);
    Chosen chosen;
    CHECK(is(rules::policy_values(chosen, 4),
             {"chosen", replicated, Accumulate::reduced, sharded, sharded, Release::never}));
    chosen.release = Release::at_update;
    CHECK_INVALID_ARGUMENT(rules::policy_values(chosen, 4), released);
    // A DynamicPolicy of it says where it was chosen.
    const DynamicPolicy of_it(chosen, {"user.cpp", 7});
    CHECK(thrown_message<std::invalid_argument>([&] { static_cast<void>(of_it.values(4)); }) ==
          text_at(released, {"user.cpp", 7}));
}

// What is chosen changes as a whole or not at all.
static_assert(std::is_copy_assignable_v<DynamicPolicy>);
template <class P>
concept Changeable = requires(P policy) {
    policy.parameters = sharded;
};
static_assert(!Changeable<DynamicPolicy> && Changeable<rules::PolicyValues>);

TEST_CASE("HybridShard: a group of no ranks is refused") {
    CHECK_INVALID_ARGUMENT(HybridShard<dynamic>{0}, "HybridShard: group of 0 ranks, expected at least 1");
    CHECK(HybridShard<dynamic>{5}.shard_group(10) == 5);
    CHECK(HybridShard<2>{}.shard_group(10) == 2);
    CHECK_INVALID_ARGUMENT(HybridOptimizer<dynamic>{0}, "HybridOptimizer: group of 0 ranks, expected at least 1");
    CHECK_INVALID_ARGUMENT(SecondaryShard<dynamic>{0}, "SecondaryShard: group of 0 ranks, expected at least 1");
}

}  // namespace policies_test
