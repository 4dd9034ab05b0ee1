// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
