// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace shardkit::detail {

/// A text or an integer that concat() joins. A text is referred to, not copied.
class Piece {
  public:
    Piece(std::string_view text) noexcept : text_(text) {}                 // NOLINT(google-explicit-constructor)
    Piece(const char* text) noexcept : text_(text) {}                      // NOLINT(google-explicit-constructor)
    Piece(const std::string& text) noexcept : text_(text) {}               // NOLINT(google-explicit-constructor)
    Piece(char letter) noexcept : kind_(Kind::letter), letter_(letter) {}  // NOLINT(google-explicit-constructor)
    template <std::integral T>
    requires(!std::same_as<T, char>) Piece(T number)
    noexcept  // NOLINT(google-explicit-constructor)
        : kind_(std::is_signed_v<T> && number < T{} ? Kind::negative : Kind::number),
          magnitude_(kind_ == Kind::negative ? -static_cast<unsigned long long>(number)
                                             : static_cast<unsigned long long>(number)) {}
    /// Refuses floating-point numbers, which would be converted to integers.
    template <std::floating_point T>
    Piece(T number) = delete;

    void append_to(std::string& text) const {
        switch (kind_) {
            case Kind::text:
                text += text_;
                break;
            case Kind::letter:
                text += letter_;
                break;
            case Kind::negative:
                text += '-';
                [[fallthrough]];
            case Kind::number:
                text += std::to_string(magnitude_);
                break;
        }
    }

  private:
    enum class Kind : unsigned char { text, letter, number, negative };

    std::string_view text_;
    Kind kind_ = Kind::text;
    char letter_ = 0;
    unsigned long long magnitude_ = 0;
};

/// Joins `count` pieces to one string. Compiled once, whatever the pieces are, as there are many messages, rarely
/// made.
[[gnu::cold]] inline std::string joined(const Piece* pieces, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) { pieces[i].append_to(text); }
    return text;
}

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

}  // namespace shardkit::detail
