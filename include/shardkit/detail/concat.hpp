// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include <shardkit/detail/forms.hpp>

namespace shardkit::detail {

/// Returns a number with the fewest digits that identify it, for concat(), which takes texts and integers alone.
template <std::floating_point T>
std::string number_text(T number) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

/// A text or an integer that concat() joins. A text is referred to, not copied.
class Piece {
  public:
    Piece(std::string_view text) noexcept
        : text_(text.data()), value_(text.size()) {}                     // NOLINT(*-explicit-constructor)
    Piece(const char* text) noexcept : Piece(std::string_view(text)) {}  // NOLINT(*-explicit-constructor)
    Piece(const std::string& text) noexcept
        : text_(text.data()), value_(text.size()) {}                   // NOLINT(*-explicit-constructor)
    Piece(const char& letter) noexcept : text_(&letter), value_(1) {}  // NOLINT(*-explicit-constructor)
    template <std::integral T>
    requires(!std::same_as<T, char>) Piece(T number)
    noexcept  // NOLINT(*-explicit-constructor)
        : text_(std::is_signed_v<T> && number < T{} ? negative : positive),
          value_(text_ == negative ? -static_cast<unsigned long long>(number)
                                   : static_cast<unsigned long long>(number)) {}
    /// Refuses floating-point numbers, which would be converted to integers.
    template <std::floating_point T>
    Piece(T number) = delete;

    void append_to(std::string& text) const {
        if (text_ != negative && text_ != positive) {
            text.append(text_, value_);
            return;
        }
        if (text_ == negative) { text += '-'; }
        text += std::to_string(value_);
    }

    template <class Hash>
    void add_to(Hash& hash) const {
        text_ == negative || text_ == positive ? hash.add(value_) : hash.add(std::string_view(text_, value_));
    }

  private:
    // Two words, as callers have many pieces. These addresses in place of a text's mark a number.
    static constexpr char signs[] = {'-', '+'};
    static constexpr const char* negative = &signs[0];
    static constexpr const char* positive = &signs[1];

    const char* text_;
    unsigned long long value_;  ///< the text's length, or the number's magnitude
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FORM {

/// Joins `count` pieces to one string. Compiled once, whatever the pieces are, as there are many messages, rarely
/// made.
std::string joined(const Piece* pieces, std::size_t count);
void append_joined(std::string& text, const Piece* pieces, std::size_t count);

#ifndef SHARDKIT_COMPILED
[[gnu::cold]] SHARDKIT_CORE_INLINE void append_joined(std::string& text, const Piece* pieces, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) { pieces[i].append_to(text); }
}
[[gnu::cold]] SHARDKIT_CORE_INLINE std::string joined(const Piece* pieces, std::size_t count) {
    std::string text;
    append_joined(text, pieces, count);
    return text;
}
#endif

}  // namespace shardkit::detail SHARDKIT_FORM

namespace shardkit::detail {

/// Joins texts and integers to one string, for error messages. For other numbers use number_text().
template <class... Pieces>
[[gnu::always_inline]] inline std::string concat(const Pieces&... pieces) {
    if constexpr (sizeof...(Pieces) == 0) {
        return {};
    } else {
        const Piece list[] = {Piece(pieces)...};
        return joined(list, sizeof...(Pieces));
    }
}

/// Appends them to `text`.
template <class... Pieces>
[[gnu::always_inline]] inline void append(std::string& text, const Pieces&... pieces) {
    const Piece list[] = {Piece(pieces)...};
    append_joined(text, list, sizeof...(Pieces));
}

/// Prints an error that a destructor finds and nobody can handle, and ends the program, as std::thread's destructor
/// does: otherwise memory that is still in use would be freed.
template <class... Pieces>
[[noreturn, gnu::cold, gnu::noinline]] void end_program(const Pieces&... pieces) noexcept {
    std::fprintf(stderr, "shardkit: %s\n", concat(pieces...).c_str());
    std::abort();
}

}  // namespace shardkit::detail
