// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

namespace program {

/// The caller's input cannot be used; the text names what was given and what was expected. Exit code 2.
class InputError : public std::invalid_argument {
  public:
    /// Of texts and whole numbers, one behind the other.
    template <class... Pieces>
    explicit InputError(const Pieces&... pieces) : std::invalid_argument(joined(pieces...)) {}

  private:
    template <class... Pieces>
    static std::string joined(const Pieces&... pieces) {
        std::string text;
        const auto add = [&](const auto& piece) {
            if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(piece)>>) {
                text += std::to_string(piece);
            } else {
                text += piece;
            }
        };
        (add(pieces), ...);
        return text;
    }
};

/// @throws InputError of the pieces unless `holds`
template <class... Pieces>
void require(bool holds, const Pieces&... pieces) {
    if (!holds) { throw InputError(pieces...); }
}

/// "--flag 'given': expected ..."
template <class... Pieces>
InputError bad_flag(const std::string& flag, const std::string& given, const Pieces&... expected) {
    return InputError(flag, " '", given, "': expected ", expected...);
}

}  // namespace program
