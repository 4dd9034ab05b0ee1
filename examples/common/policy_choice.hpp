// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/policy/named_policy.hpp>

#include "parse.hpp"

namespace program {

enum class PolicyKind : std::uint8_t {
    no_shard,
    shard_optimizer,
    shard_grad_op,
    full_shard,
    hybrid_shard,
    hybrid_optimizer,
    secondary_shard
};

inline constexpr std::array<std::string_view, 7> policy_names{"no_shard",       "shard_optimizer", "shard_grad_op",
                                                              "full_shard",     "hybrid_shard",    "hybrid_optimizer",
                                                              "secondary_shard"};

/// Returns whether the policy is one of groups of N ranks, as hybrid_shard:N.
constexpr bool has_groups(PolicyKind kind) noexcept { return kind >= PolicyKind::hybrid_shard; }
/// What errors and --help say of a policy's flag.
inline constexpr std::string_view policy_words =
    "no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard:N, hybrid_optimizer:N or secondary_shard:N";

/// One of the library's policies as a flag gives it: "full_shard", or "hybrid_shard:2".
struct PolicyChoice {
    PolicyKind kind = PolicyKind::full_shard;
    std::size_t group = 0;  ///< ranks of a shard group, of a policy that has such; else 0

    std::string text() const {
        const std::string name(policy_names[static_cast<std::size_t>(kind)]);
        return has_groups(kind) ? name + ":" + std::to_string(group) : name;
    }

    shardkit::DynamicPolicy policy() const { return shardkit::named_policy(text()); }

    /// @throws InputError when the policy's groups do not divide the data-parallel ranks, `of` which they are
    void require_fits(const std::string& flag, std::size_t ranks, const std::string& of = "") const {
        if (has_groups(kind) && ranks % group != 0) {
            throw bad_flag(flag, text(),
                           "a group that divides the " + std::to_string(ranks) + " data-parallel ranks" + of);
        }
    }
};

/// @throws InputError for anything but a policy's name, with the number of ranks behind those that have groups
inline PolicyChoice parse_policy(const std::string& flag, const std::string& given) {
    const std::string name = given.substr(0, given.find(':'));
    const std::string behind = given.substr(std::min(given.size(), name.size() + 1));
    for (std::size_t i = 0; i < policy_names.size(); ++i) {
        const auto kind = static_cast<PolicyKind>(i);
        if (name != policy_names[i]) { continue; }
        std::size_t group = 0;
        if (has_groups(kind) && read_whole(behind, group) && group > 0) { return {kind, group}; }
        if (!has_groups(kind) && given == name) { return {kind, 0}; }
    }
    throw bad_flag(flag, given,
                   std::string(policy_words) + " with N ranks in a group, N a whole number of at least 1");
}

}  // namespace program
