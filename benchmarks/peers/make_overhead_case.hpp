// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>

#include "followed_case.hpp"
#include "overhead_cases.hpp"

namespace benchmarks::peers {

inline constexpr std::string_view followed_step = "followed_step";
inline constexpr std::string_view improved_step = "improved_step";
inline constexpr std::string_view recorded_call = "recorded_call";
inline constexpr std::array<std::string_view, 7> overhead_names{
    "full_shard_window", "full_shard_reduce", "no_shard_window", "no_shard_reduce",
    followed_step,       improved_step,       recorded_call};
/// Whether the case is a step that follows a schedule.
constexpr bool follows(std::string_view name) noexcept { return name == followed_step || name == improved_step; }
/// Whether the case is measured at one size.
constexpr bool has_one_size(std::string_view name) noexcept { return follows(name) || name == recorded_call; }

/// @throws std::invalid_argument for another name
inline std::unique_ptr<OverheadCase> make_overhead_case(shardkit::Rank& rank, std::string_view name, std::size_t n) {
    using shardkit::FullShard;
    using shardkit::NoShard;
    if (name == overhead_names[0]) { return std::make_unique<WindowCase<FullShard>>(rank, n); }
    if (name == overhead_names[1]) { return std::make_unique<ReduceCase<FullShard>>(rank, n); }
    if (name == overhead_names[2]) { return std::make_unique<WindowCase<NoShard>>(rank, n); }
    if (name == overhead_names[3]) { return std::make_unique<ReduceCase<NoShard>>(rank, n); }
    if (follows(name)) { return std::make_unique<FollowedCase>(rank, n, name == improved_step); }
    if (name == recorded_call) { return std::make_unique<RecordedCase>(rank, n); }
    throw std::invalid_argument("case '" + std::string(name) + "': unknown");
}

}  // namespace benchmarks::peers
