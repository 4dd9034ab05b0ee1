// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace shardkit {

/// A string literal as a template argument.
template <std::size_t N>
struct FixedString {
    char characters[N]{};

    constexpr FixedString(const char (&literal)[N]) noexcept {  // NOLINT(google-explicit-constructor)
        std::copy_n(literal, N, characters);
    }
    constexpr std::string_view view() const noexcept { return {characters, N - 1}; }
};

}  // namespace shardkit
