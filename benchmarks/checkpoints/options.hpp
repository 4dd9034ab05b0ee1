// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <shardkit/policy/dynamic_policy.hpp>

namespace benchmarks::checkpoints {

inline constexpr std::array<std::string_view, 4> policy_names{"no_shard", "shard_optimizer", "shard_grad_op",
                                                              "full_shard"};

/// What the command line says, checked.
struct Options {
    std::size_t ranks = 2;
    std::size_t policy = 3;                ///< of policy_names
    std::uint64_t elements = 124'000'000;  ///< of the model, about: the state has three times as many
    std::size_t rounds = 15;
    std::string folder;  ///< in which a folder of its own is made; empty: that of the system for temporary files
    std::string json;    ///< file name; empty: not asked for

    shardkit::DynamicPolicy chosen_policy() const;
};

/// The options, checked; none, and `help` set, when help was asked for.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help);

}  // namespace benchmarks::checkpoints
