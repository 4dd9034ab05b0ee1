// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

#include <shardkit/core/counts.hpp>

namespace shardkit::detail {

/// Returns a number of bytes as readable text, "512 B" or "1.50 MiB": about three digits, in powers of 1024.
inline std::string human_bytes(ByteCount count) {
    constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    auto value = static_cast<double>(count.value);
    while (value >= 1024 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text.data();
}

}  // namespace shardkit::detail
