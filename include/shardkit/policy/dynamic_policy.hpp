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

/// A policy that is chosen when the program runs, by a flag or a configuration file:
///     DynamicPolicy policy = zero3 ? DynamicPolicy(FullShard{}) : DynamicPolicy(NoShard{});
///     Sharded<Block, DynamicPolicy> block{rank, "blocks.0", {}, {policy}};
/// A trainer is compiled once instead of once for each policy, and computes the same, bit for bit. What a policy's
/// type reports at compile time (an impossible mesh, memory that cannot be adopted) is an exception instead. There is
/// no default: a group without a choice does not compile. A DynamicPolicy is always valid: its values cannot be
/// changed one by one.
class DynamicPolicy {
  public:
    template <class Policy>
    requires(!std::derived_from<Policy, DynamicPolicy>) &&
        ShardPolicy<Policy> explicit DynamicPolicy(const Policy& chosen,
                                                   SourceLocation where = SourceLocation::current())
        : chosen_(chosen),
    values_of_(&values_of<Policy>), where_(where) {
        static_assert(rules::PolicyRules<Policy>::hold);
    }
    /// Makes a policy from values, for example from a file, that correspond to no policy type. Groups of
    /// `values.shard_group` neighbouring ranks share a copy, whatever dp is.
    /// @throws std::invalid_argument with the sentence of the broken rule when no such policy can exist
    explicit DynamicPolicy(const rules::PolicyValues& values, SourceLocation where = SourceLocation::current())
        : chosen_(values), values_of_(&same_values), where_(where) {
        if (const std::string_view broken = rules::broken_rule(values); !broken.empty()) {
            throw_invalid_argument(where, "DynamicPolicy '", values.name, "': ", broken);
        }
    }

    /// Returns the policy's values on a mesh with `dp` data-parallel ranks, on which only `shard_group` depends.
    rules::PolicyValues values(std::size_t dp = 1) const { return values_of_(chosen_, dp, where_); }
    std::string_view name() const { return values().name; }
    std::size_t shard_group(std::size_t dp) const { return values(dp).shard_group; }

  private:
    template <class Policy>
    static rules::PolicyValues values_of(const std::any& chosen, std::size_t dp, SourceLocation where) {
        return rules::policy_values(*std::any_cast<Policy>(&chosen), dp, where);
    }
    static rules::PolicyValues same_values(const std::any& chosen, std::size_t /*dp*/, SourceLocation /*where*/) {
        return *std::any_cast<rules::PolicyValues>(&chosen);
    }

    // No std::function: <functional> would make this header take 1.6 times as long to compile.
    std::any chosen_;
    rules::PolicyValues (*values_of_)(const std::any& chosen, std::size_t dp, SourceLocation where);
    SourceLocation where_;
};

static_assert(ShardPolicy<DynamicPolicy> && rules::PolicyRules<DynamicPolicy>::hold);

}  // namespace shardkit
