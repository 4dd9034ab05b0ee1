// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardkit {

/// The communication verbs as a run-time value, for error messages and for counting.
enum class Verb : std::uint8_t {
    all_gather,
    reduce_scatter,
    all_reduce,
    broadcast,
    all_to_all,
    all_to_all_uneven,
    send,
    receive,
    barrier,
    split
};
namespace detail {

/// The number of verbs.
inline constexpr std::size_t verb_count = 10;

/// Returns whether two ranks take part in a verb, and not all of a group.
constexpr bool is_message(Verb verb) noexcept { return verb == Verb::send || verb == Verb::receive; }

}  // namespace detail

/// Returns the verb's name in errors and logs.
constexpr std::string_view name(Verb verb) noexcept {
    constexpr std::string_view names[] = {
        "all_gather",        "reduce_scatter", "all_reduce", "broadcast", "all_to_all",
        "all_to_all_uneven", "send",           "receive",    "barrier",   "split"};
    return names[static_cast<std::size_t>(verb)];
}

}  // namespace shardkit
