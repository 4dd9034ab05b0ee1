// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../../common/parse.hpp"

namespace train_gpt {

/// How --schedule names what a step follows: "auto", or "prefetch:2".
struct ScheduleChoice {
    enum class Kind : std::uint8_t {
        none,      ///< nothing: each verb communicates when it is called
        prefetch,  ///< gathers start so many windows ahead
        automatic  ///< what waits least
    } kind = Kind::none;
    std::size_t depth = 0;  ///< of prefetch; else 0

    std::string text() const {
        return kind == Kind::none ? "none" : kind == Kind::prefetch ? "prefetch:" + std::to_string(depth) : "auto";
    }
};

/// @throws InputError for anything but none, auto and prefetch, with or without a depth
inline ScheduleChoice parse_schedule(const std::string& flag, const std::string& given) {
    constexpr std::string_view deeper = "prefetch:";
    if (given == "none") { return {}; }
    if (given == "auto") { return {ScheduleChoice::Kind::automatic, 0}; }
    if (given == "prefetch") { return {ScheduleChoice::Kind::prefetch, 1}; }
    std::size_t depth = 0;
    if (given.starts_with(deeper) && program::read_whole(std::string_view(given).substr(deeper.size()), depth) &&
        depth > 0) {
        return {ScheduleChoice::Kind::prefetch, depth};
    }
    throw program::bad_flag(flag, given, "none, auto, prefetch or prefetch:N, N a whole number of at least 1");
}

}  // namespace train_gpt
