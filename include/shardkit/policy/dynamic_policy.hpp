// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// A policy that is chosen when the program runs, by a flag or a configuration file:
///     DynamicPolicy policy = zero3 ? DynamicPolicy(FullShard{}) : DynamicPolicy(NoShard{});
///     Sharded<Block, DynamicPolicy, Engine> block{rank, "blocks.0", {}, {policy}};
/// Trainers are compiled once instead of once for each policy; they do the same, bit for bit. What a policy's type
/// tells the compiler (an impossible mesh, memory that cannot be adopted) is an exception instead. There is no
/// default: a group without a choice does not compile. ShardOver<DynamicPolicy, Axes<DpShard, Cp>> shards over cp as
/// well.
class DynamicPolicy {
  public:
    /// `chosen` is any possible policy that shards over dp alone.
    template <class Policy>
    requires(!std::derived_from<Policy, DynamicPolicy>) &&
        ShardPolicy<Policy>&& std::same_as<ShardAxes<Policy>, Axes<DpShard>> explicit DynamicPolicy(
            const Policy& chosen)
        : name(Policy::name),
    parameters(Policy::parameters), gradients(Policy::gradients), optimizer(Policy::optimizer),
    accumulate(Policy::accumulate), release(Policy::release), chosen_(chosen),
    shard_group_of_(&shard_group_of<Policy>) {
        static_assert(PolicyRules<Policy>::hold);
    }

    std::string_view name;
    Placement parameters;
    Placement gradients;
    Placement optimizer;
    Accumulate accumulate;
    Release release;

    std::size_t shard_group(std::size_t dp) const { return shard_group_of_(chosen_, dp); }

  private:
    template <class Policy>
    static std::size_t shard_group_of(const std::any& chosen, std::size_t dp) {
        return static_cast<std::size_t>(std::any_cast<Policy>(&chosen)->shard_group(dp));
    }

    // Not a std::function: <functional> would make this header take 1.6 times as long to read.
    std::any chosen_;
    std::size_t (*shard_group_of_)(const std::any& chosen, std::size_t dp);
};

/// The rules held for what was chosen; only the axes are known here.
template <std::derived_from<DynamicPolicy> Policy>
struct PolicyRules<Policy> : detail::ShardAxesRule<Policy> {
    static constexpr bool hold = PolicyRules::shards_over_dp;
};

static_assert(ShardPolicy<DynamicPolicy> && PolicyRules<DynamicPolicy>::hold);

}  // namespace shardkit
