// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <shardkit/policy/dynamic_policy.hpp>

#include "../../examples/common/policy_choice.hpp"

namespace benchmarks::checkpoints {

/// Those that need no group of ranks.
inline constexpr auto policy_names = std::span(program::policy_names).first<4>();

/// What the command line says, checked.
struct Options {
    std::size_t ranks = 2;
    program::PolicyKind policy = program::PolicyKind::full_shard;
    std::uint64_t elements = 124'000'000;  ///< of the model, about: the state has three times as many
    std::size_t rounds = 15;
    std::string folder;  ///< in which a folder of its own is made; empty: that of the system for temporary files
    std::string json;    ///< file name; empty: not asked for

    shardkit::DynamicPolicy chosen_policy() const { return program::PolicyChoice{policy, 0}.policy(); }
};

/// The options, checked; none, and `help` set, when help was asked for.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help);

}  // namespace benchmarks::checkpoints
