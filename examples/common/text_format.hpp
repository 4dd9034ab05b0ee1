// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace program {

/// printf into a string of at most 399 characters.
template <class... Values>
std::string formatted(const char* format, Values... values) {
    std::array<char, 400> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    return line.data();
}

/// "1,234,567"
inline std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3) { digits.insert(at - 3, 1, ','); }
    return digits;
}

/// "m:ss", or "h:mm:ss"
inline std::string duration_text(double seconds) {
    const auto whole = std::lround(seconds);
    return whole < 3600 ? formatted("%ld:%02ld", whole / 60, whole % 60)
                        : formatted("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
}

/// Bytes that a model wrote, for a terminal: what is no printable ASCII, line break or tab as \xNN.
inline std::string printable(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
        const bool prints = (c >= ' ' && c <= '~') || c == '\n' || c == '\t';
        text += prints ? std::string(1, c) : formatted("\\x%02x", static_cast<unsigned char>(c));
    }
    return text;
}

/// "12.30 MiB"
inline std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < units.size(); ++unit) { value /= 1024; }
    return formatted(unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}

/// "a, b and c", or with another last word
template <class Names>
std::string listed(const Names& names, const char* last = "and") {
    std::string text;
    std::size_t left = std::size(names);
    for (const auto& name : names) {
        text.append(text.empty() ? "" : left == 1 ? std::string(" ") + last + " " : ", ").append(name);
        --left;
    }
    return text;
}

}  // namespace program
