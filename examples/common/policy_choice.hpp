// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/policy/named_policy.hpp>

#include "parse.hpp"

namespace program {

enum class PolicyKind : std::uint8_t { no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard };

inline constexpr std::array<std::string_view, 5> policy_names{"no_shard", "shard_optimizer", "shard_grad_op",
                                                              "full_shard", "hybrid_shard"};

/// One of the library's policies as a flag gives it: "full_shard", or "hybrid_shard:2".
struct PolicyChoice {
    PolicyKind kind = PolicyKind::full_shard;
    std::size_t hybrid_group = 0;  ///< ranks that share one copy, of hybrid_shard; else 0

    std::string text() const {
        const std::string name(policy_names[static_cast<std::size_t>(kind)]);
        return kind == PolicyKind::hybrid_shard ? name + ":" + std::to_string(hybrid_group) : name;
    }

    shardkit::DynamicPolicy policy() const { return shardkit::named_policy(text()); }

    /// @throws InputError when the groups of hybrid_shard do not divide the dp ranks of `mesh`
    void require_fits(const std::string& flag, std::size_t dp, const std::string& mesh) const {
        if (kind == PolicyKind::hybrid_shard && dp % hybrid_group != 0) {
            throw bad_flag(
                flag, text(),
                "a group that divides the " + std::to_string(dp) + " data-parallel ranks of --mesh " + mesh);
        }
    }
};

/// @throws InputError for anything but a policy's name, with the number of ranks in a group behind hybrid_shard
inline PolicyChoice parse_policy(const std::string& flag, const std::string& given) {
    constexpr std::string_view hybrid = "hybrid_shard:";
    const std::string expected =
        "no_shard, shard_optimizer, shard_grad_op, full_shard or hybrid_shard:N with N ranks in a group";
    for (std::size_t i = 0; i + 1 < policy_names.size(); ++i) {
        if (given == policy_names[i]) { return {static_cast<PolicyKind>(i), 0}; }
    }
    std::size_t group = 0;
    if (given.starts_with(hybrid) && read_whole(std::string_view(given).substr(hybrid.size()), group) && group > 0) {
        return {PolicyKind::hybrid_shard, group};
    }
    throw bad_flag(flag, given, expected + ", N a whole number of at least 1");
}

}  // namespace program
