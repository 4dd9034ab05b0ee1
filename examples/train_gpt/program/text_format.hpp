// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace train_gpt {

/// "1,234,567"
inline std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3) { digits.insert(at - 3, 1, ','); }
    return digits;
}

/// printf into a string.
template <class... Values>
std::string formatted(const char* format, Values... values) {
    std::array<char, 200> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    return line.data();
}

/// "12.3 MiB"
inline std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < units.size(); ++unit) { value /= 1024; }
    return formatted(unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}

/// "m:ss"
inline std::string duration_text(double seconds) {
    const auto whole = std::lround(seconds);
    return formatted("%ld:%02ld", whole / 60, whole % 60);
}

inline std::string table_row(const char* name, const std::string& value) {
    return formatted("  %-18s %14s\n", name, value.c_str());
}

}  // namespace train_gpt
