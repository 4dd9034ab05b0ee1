// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace shardkit::detail {

inline void append_piece(std::string& text, std::string_view piece) { text += piece; }
inline void append_piece(std::string& text, const char* piece) { text += piece; }
inline void append_piece(std::string& text, const std::string& piece) { text += piece; }
inline void append_piece(std::string& text, char piece) { text += piece; }

template <class T>
requires std::is_arithmetic_v<T>
void append_piece(std::string& text, T number) {
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, static_cast<std::size_t>(end - digits));
}

/// One string out of texts and numbers; for error messages.
template <class... Pieces>
std::string concat(const Pieces&... pieces) {
    std::string text;
    (append_piece(text, pieces), ...);
    return text;
}

}  // namespace shardkit::detail
