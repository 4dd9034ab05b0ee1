// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardkit::detail {

/// Returns the bytes of the UTF-8 sequence at the begin of a text (RFC 3629: no overlong form, no surrogate, nothing
/// above U+10FFFF); 0 if there is none.
inline std::size_t utf8_sequence(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const std::uint32_t lead = byte(0);
    if (lead < 0x80) { return text.empty() ? 0 : 1; }
    const std::size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    std::uint32_t point = lead & (0x7FU >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0U) != 0x80U) { return 0; }
        point = (point << 6U) | (byte(i) & 0x3FU);
    }
    const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    return overlong || (point >= 0xD800 && point < 0xE000) || point > 0x10FFFF ? 0 : length;
}
inline bool is_utf8(std::string_view text) noexcept {
    while (const std::size_t length = utf8_sequence(text)) { text.remove_prefix(length); }
    return text.empty();
}

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
