// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace shardkit::detail {

inline void append_piece(std::string& text, std::string_view piece) { text += piece; }
inline void append_piece(std::string& text, const char* piece) { text += piece; }
inline void append_piece(std::string& text, const std::string& piece) { text += piece; }
inline void append_piece(std::string& text, char piece) { text += piece; }

template <class T>
requires std::is_integral_v<T>
void append_piece(std::string& text, T number) { text += std::to_string(number); }

/// Would be taken for a char.
template <std::floating_point T>
void append_piece(std::string& text, T number) = delete;

/// One string out of texts and whole numbers; for error messages. Other numbers by number_text().
template <class... Pieces>
std::string concat(const Pieces&... pieces) {
    std::string text;
    (append_piece(text, pieces), ...);
    return text;
}

}  // namespace shardkit::detail
