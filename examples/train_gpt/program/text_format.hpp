// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../../common/text_format.hpp"

namespace train_gpt {

/// "1,234,567"
inline std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3) { digits.insert(at - 3, 1, ','); }
    return digits;
}

/// "m:ss"
inline std::string duration_text(double seconds) {
    const auto whole = std::lround(seconds);
    return program::formatted("%ld:%02ld", whole / 60, whole % 60);
}

inline std::string table_row(const char* name, const std::string& value) {
    return program::formatted("  %-18s %14s\n", name, value.c_str());
}

}  // namespace train_gpt
