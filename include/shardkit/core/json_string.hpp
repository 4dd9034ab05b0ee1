// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/core/source_location.hpp>

namespace shardkit::detail {

/// Returns a text as a JSON string.
/// @pre the text is UTF-8
inline std::string json_string(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string json = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (byte < 0x20 || byte == 0x7F) {
            json += "\\u00";
            json += digits[byte >> 4U];
            json += digits[byte & 0xFU];
        } else {
            json += c;
        }
    }
    return json + '"';
}

}  // namespace shardkit::detail
