// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "input_error.hpp"
#include "options.hpp"

namespace train_gpt {

/// A whole number from `least` on.
/// @throws InputError for anything else: signs, fractions, other characters, overflow
inline std::uint64_t parse_count(const std::string& flag, const std::string& given, std::uint64_t least) {
    std::uint64_t value = 0;
    const char* end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, value);
    if (error != std::errc{} || stop != end || value < least) {
        throw bad_flag(flag, given,
                       "a whole number from " + std::to_string(least) + " to " +
                           std::to_string(std::numeric_limits<std::uint64_t>::max()));
    }
    return value;
}

/// A finite number of at least 0.
/// @throws InputError for anything else: NaN, infinity, negative numbers, other characters
inline double parse_not_negative(const std::string& flag, const std::string& given) {
    double value = 0;
    const char* end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, value);
    if (error != std::errc{} || stop != end || !std::isfinite(value) || value < 0) {
        throw bad_flag(flag, given, "a finite number of at least 0");
    }
    return value;
}

/// "a, b or c"
template <std::size_t N>
std::string one_of(const std::array<std::string_view, N>& names) {
    std::string text;
    for (std::size_t i = 0; i < N; ++i) {
        text += std::string(i == 0 ? "" : i + 1 == N ? " or " : ", ").append(names[i]);
    }
    return text;
}

/// The enumerator whose name was given.
template <class Enum, std::size_t N>
Enum parse_name(const std::string& flag, const std::string& given, const std::array<std::string_view, N>& names) {
    for (std::size_t i = 0; i < N; ++i) {
        if (given == names[i]) { return static_cast<Enum>(i); }
    }
    throw bad_flag(flag, given, one_of(names));
}

/// "4x1x1": data x tensor x context parallel ranks.
inline MeshExtents parse_mesh(const std::string& given) {
    std::array<std::uint64_t, 3> extents{};
    const char* at = given.data();
    const char* end = at + given.size();
    for (std::size_t i = 0; i < extents.size(); ++i) {
        const auto [stop, error] = std::from_chars(at, end, extents[i]);
        const bool separated = i + 1 == extents.size() ? stop == end : stop != end && *stop == 'x';
        if (error != std::errc{} || !separated || extents[i] == 0) {
            throw bad_flag("--mesh", given, "DPxTPxCP, three whole numbers of at least 1, for example 4x1x1");
        }
        at = stop + 1;
    }
    if (extents[0] > std::numeric_limits<std::uint32_t>::max() || extents[1] > 0xffffU || extents[2] > 0xffffU) {
        throw bad_flag("--mesh", given, "at most 4294967295x65535x65535 ranks");
    }
    return {extents[0], extents[1], extents[2]};
}

/// "full_shard", or "hybrid_shard:2".
inline void parse_policy(const std::string& given, Options& options) {
    constexpr std::string_view hybrid = "hybrid_shard:";
    const std::string expected =
        "no_shard, shard_optimizer, shard_grad_op, full_shard or hybrid_shard:N with N ranks in a group";
    if (given.starts_with(hybrid)) {
        options.policy = PolicyKind::hybrid_shard;
        const std::string group = given.substr(hybrid.size());
        const auto [stop, error] = std::from_chars(group.data(), group.data() + group.size(), options.hybrid_group);
        if (error == std::errc{} && stop == group.data() + group.size() && options.hybrid_group > 0) { return; }
        throw bad_flag("--policy", given, expected + ", N a whole number of at least 1");
    }
    for (std::size_t i = 0; i + 1 < policy_names.size(); ++i) {
        if (given == policy_names[i]) {
            options.policy = static_cast<PolicyKind>(i);
            return;
        }
    }
    throw bad_flag("--policy", given, expected);
}

}  // namespace train_gpt
