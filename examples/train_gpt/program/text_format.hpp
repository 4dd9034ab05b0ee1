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

/// "m:ss", or "h:mm:ss"
inline std::string duration_text(double seconds) {
    const auto whole = std::lround(seconds);
    return whole < 3600 ? program::formatted("%ld:%02ld", whole / 60, whole % 60)
                        : program::formatted("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
}

/// Bytes that a model wrote, for a terminal: what is no printable ASCII, line break or tab as \xNN.
inline std::string printable(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
        const bool prints = (c >= ' ' && c <= '~') || c == '\n' || c == '\t';
        text += prints ? std::string(1, c) : program::formatted("\\x%02x", static_cast<unsigned char>(c));
    }
    return text;
}

}  // namespace train_gpt
