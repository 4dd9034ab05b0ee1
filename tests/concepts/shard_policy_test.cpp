// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/policy/policy_rules.hpp>

namespace shard_policy_test {

namespace {

using namespace shardkit;

/// The least that is a policy.
struct Minimal {
    static constexpr const char* name = "minimal";
    static constexpr Placement parameters = Placement::sharded;
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
    static constexpr Accumulate accumulate = Accumulate::reduced;
    static constexpr Release release = Release::at_reshard;
    static constexpr int shard_group(std::size_t) { return 2; }
};
static_assert(ShardPolicy<Minimal> && rules::PolicyRules<Minimal>::hold);
static_assert(ShardPolicy<NoShard> && rules::PolicyRules<NoShard>::hold);
static_assert(ShardPolicy<ShardOptimizer> && rules::PolicyRules<ShardOptimizer>::hold);
static_assert(ShardPolicy<ShardGradOp> && rules::PolicyRules<ShardGradOp>::hold);
static_assert(ShardPolicy<FullShard> && rules::PolicyRules<FullShard>::hold);
static_assert(ShardPolicy<HybridShard<2>> && rules::PolicyRules<HybridShard<2>>::hold);
static_assert(ShardPolicy<HybridShard<dynamic>> && rules::PolicyRules<HybridShard<dynamic>>::hold);
static_assert(rules::policy_values(Minimal{}, 8).name == std::string_view("minimal"));
static_assert(rules::policy_values(Minimal{}, 8).shard_group == 2);

// One violator for each requirement: the member is hidden by one of another kind.
struct NoName : Minimal {
    static constexpr int name = 3;
};
struct NoParameters : Minimal {
    static constexpr bool parameters = true;
};
struct NoGradients : Minimal {
    static constexpr Accumulate gradients = Accumulate::reduced;
};
struct NoOptimizer : Minimal {
    static constexpr int optimizer = 1;
};
struct NoAccumulate : Minimal {
    static constexpr Placement accumulate = Placement::sharded;
};
struct NoRelease : Minimal {
    static constexpr std::string_view release = "never";
};
struct GroupOfNothing : Minimal {
    static constexpr std::size_t shard_group() { return 2; }
};
struct GroupOfText : Minimal {
    static std::string shard_group(std::size_t) { return "2"; }
};
struct GroupNotConst : Minimal {
    std::size_t shard_group(std::size_t) { return 2; }  // NOLINT(readability-convert-member-functions-to-static)
};
struct NotCopyable : Minimal {
    NotCopyable(NotCopyable&&) = default;
    NotCopyable& operator=(NotCopyable&&) = default;
};
static_assert(!ShardPolicy<NoName> && !ShardPolicy<NoParameters> && !ShardPolicy<NoGradients>);
static_assert(!ShardPolicy<NoOptimizer> && !ShardPolicy<NoAccumulate> && !ShardPolicy<NoRelease>);
static_assert(!ShardPolicy<GroupOfNothing> && !ShardPolicy<GroupOfText> && !ShardPolicy<GroupNotConst>);
static_assert(!ShardPolicy<NotCopyable> && !ShardPolicy<int> && !ShardPolicy<void>);

// What has everything but one member.
struct LacksRelease {
    static constexpr std::string_view name = "lacks_release";
    static constexpr Placement parameters = Placement::sharded;
    static constexpr Placement gradients = Placement::sharded;
    static constexpr Placement optimizer = Placement::sharded;
    static constexpr Accumulate accumulate = Accumulate::reduced;
    static constexpr std::size_t shard_group(std::size_t dp) { return dp; }
};
static_assert(!ShardPolicy<LacksRelease>);

/// The least that is a policy whose values are known when the program runs.
struct Told {
    static rules::PolicyValues values(std::size_t dp) { return rules::policy_values(FullShard{}, dp); }
};
struct TellsNothing {
    static void values(std::size_t /*dp*/) {}
};
struct TellsOfNoMesh {
    static rules::PolicyValues values() { return {}; }
};
static_assert(ShardPolicy<Told> && !rules::StaticPolicy<Told> && rules::StaticPolicy<Minimal>);
static_assert(!ShardPolicy<TellsNothing> && !ShardPolicy<TellsOfNoMesh>);

static_assert(ShardPolicy<NoShard> && ShardPolicy<ShardOptimizer> && ShardPolicy<ShardGradOp>);
static_assert(ShardPolicy<FullShard> && ShardPolicy<HybridShard<7>> && ShardPolicy<HybridShard<dynamic>>);
static_assert(ShardPolicy<DynamicPolicy> && rules::PolicyRules<DynamicPolicy>::hold);
static_assert(ShardPolicy<ShardOver<Minimal, Axes<DpShard, Cp>>>, "also of the user's own");

}  // namespace

TEST_CASE("ShardPolicy: shard_group may depend on the object") {
    struct Chosen : FullShard {
        std::size_t ranks = 1;
        std::size_t shard_group(std::size_t) const { return ranks; }
    };
    static_assert(ShardPolicy<Chosen>);
    Chosen chosen;
    chosen.ranks = 6;
    CHECK(rules::policy_values(chosen, 12).shard_group == 6);
}

}  // namespace shard_policy_test
