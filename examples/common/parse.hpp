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
#include <vector>

#include "input_error.hpp"
#include "text_format.hpp"

namespace program {

/// Whether all of `text` is a number; `value` is written then.
template <class Number>
bool read_whole(std::string_view text, Number& value) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc{} && stop == end;
}

/// A whole number from `least` to `most`.
/// @throws InputError for anything else: signs, fractions, other characters, overflow
inline std::uint64_t parse_count(const std::string& flag, const std::string& given, std::uint64_t least,
                                 std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    std::uint64_t value = 0;
    if (!read_whole(std::string_view(given), value) || value < least || value > most) {
        throw bad_flag(flag, given, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
}

/// A finite number of at least 0.
/// @throws InputError for anything else: NaN, infinity, negative numbers, other characters
inline double parse_not_negative(const std::string& flag, const std::string& given) {
    double value = 0;
    if (!read_whole(std::string_view(given), value) || !std::isfinite(value) || value < 0) {
        throw bad_flag(flag, given, "a finite number of at least 0");
    }
    return value;
}

/// A name of a file that may be written.
inline std::string parse_file(const std::string& flag, const std::string& given) {
    if (given.empty()) { throw bad_flag(flag, given, "a file name"); }
    return given;
}

/// Bytes: a whole number of at least 1, in units of 1024, 1024^2 or 1024^3 bytes with a K, M or G behind it, or a
/// small letter.
/// @throws InputError for anything else, and for more than 1024 G
inline std::uint64_t parse_bytes(const std::string& flag, const std::string& given) {
    constexpr std::string_view units = "KMGkmg";
    const std::size_t unit = given.empty() ? units.npos : units.find(given.back());
    const std::uint64_t scale = unit == units.npos ? 1 : std::uint64_t{1} << (10 * (unit % 3 + 1));
    const std::uint64_t most = (std::uint64_t{1} << 40U) / scale;
    const std::string_view digits(given.data(), given.size() - (unit == units.npos ? 0 : 1));
    std::uint64_t value = 0;
    if (!read_whole(digits, value) || value == 0 || value > most) {
        throw bad_flag(flag, given, "bytes from 1 to 1024G, as a whole number or with K, M or G behind it");
    }
    return value * scale;
}

/// The index of the name that was given.
template <class Names>
std::size_t parse_name(const std::string& flag, const std::string& given, const Names& names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (given == names[i]) { return i; }
    }
    throw bad_flag(flag, given, listed(names, "or"));
}

/// The name of a value whose names stand in its order.
template <class Names, class Enum>
constexpr std::string_view name_of(const Names& names, Enum value) {
    return names[static_cast<std::size_t>(value)];
}

/// Of a flag that turns something on or off.
inline constexpr std::array<std::string_view, 2> switch_names{"off", "on"};

/// "a,b,c" at its commas; parts may be empty.
inline std::vector<std::string> split_list(const std::string& given) {
    std::vector<std::string> parts(1);
    for (const char c : given) {
        if (c == ',') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

/// The indices of the names in a list with commas, in the order given; "all" stands for every name.
/// @throws InputError for an unknown name or one given twice
template <class Names>
std::vector<std::size_t> parse_names(const std::string& flag, const std::string& given, const Names& names) {
    std::vector<std::size_t> chosen;
    if (given == "all") {
        for (std::size_t i = 0; i < names.size(); ++i) { chosen.push_back(i); }
        return chosen;
    }
    const std::string expected = "all, or a list with commas of " + listed(names, "and");
    for (const std::string& part : split_list(given)) {
        std::size_t found = 0;
        while (found < names.size() && part != names[found]) { ++found; }
        if (found == names.size()) { throw bad_flag(flag, given, expected); }
        for (const std::size_t earlier : chosen) {
            if (earlier == found) { throw bad_flag(flag, given, "each name once"); }
        }
        chosen.push_back(found);
    }
    return chosen;
}

}  // namespace program
