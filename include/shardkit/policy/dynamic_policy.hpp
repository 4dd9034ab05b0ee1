// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/policy_rules.hpp>

namespace shardkit {

/// Holds a policy that is chosen when the program runs, by a flag or a configuration file:
///     DynamicPolicy policy = zero3 ? DynamicPolicy(FullShard{}) : DynamicPolicy(NoShard{});
///     Sharded<Block, DynamicPolicy, Engine> block{rank, "blocks.0", {}, {policy}};
/// Trainers are compiled once instead of once for each policy; they do the same, bit for bit. What a policy's type
/// tells the compiler (an impossible mesh, memory that cannot be adopted) is an exception instead. There is no
/// default: a group without a choice does not compile. Once made it is as possible as a policy's type: nothing of it
/// can be changed but all of it at once.
class DynamicPolicy {
  public:
    template <class Policy>
    requires(!std::derived_from<Policy, DynamicPolicy>) &&
        ShardPolicy<Policy> explicit DynamicPolicy(const Policy& chosen,
                                                   SourceLocation where = SourceLocation::current())
        : chosen_(chosen),
    values_of_(&values_of<Policy>), where_(where) {
        static_assert(PolicyRules<Policy>::hold);
    }
    /// Makes a policy of values that no type of the program's has, from a file for example. Groups of
    /// `values.shard_group` neighbours share a copy, whatever dp is.
    /// @throws std::invalid_argument with the rule's sentence when there can be no such policy
    explicit DynamicPolicy(const PolicyValues& values, SourceLocation where = SourceLocation::current())
        : chosen_(values), values_of_(&same_values), where_(where) {
        if (const std::string_view broken = broken_rule(values); !broken.empty()) {
            throw_invalid_argument(where, "DynamicPolicy '", values.name, "': ", broken);
        }
    }

    /// Returns the policy's values on a mesh with `dp` data-parallel ranks, on which only `shard_group` depends.
    PolicyValues values(std::size_t dp = 1) const { return values_of_(chosen_, dp, where_); }
    std::string_view name() const { return values().name; }
    std::size_t shard_group(std::size_t dp) const { return values(dp).shard_group; }

  private:
    template <class Policy>
    static PolicyValues values_of(const std::any& chosen, std::size_t dp, SourceLocation where) {
        return policy_values(*std::any_cast<Policy>(&chosen), dp, where);
    }
    static PolicyValues same_values(const std::any& chosen, std::size_t /*dp*/, SourceLocation /*where*/) {
        return *std::any_cast<PolicyValues>(&chosen);
    }

    // Not a std::function: <functional> would make this header take 1.6 times as long to read.
    std::any chosen_;
    PolicyValues (*values_of_)(const std::any& chosen, std::size_t dp, SourceLocation where);
    SourceLocation where_;
};

static_assert(ShardPolicy<DynamicPolicy> && PolicyRules<DynamicPolicy>::hold);

}  // namespace shardkit
