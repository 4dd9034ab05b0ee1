// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace shardkit {

/// A string literal as a template argument.
template <std::size_t N>
struct FixedString {
    char characters[N]{};

    constexpr FixedString(const char (&literal)[N]) noexcept {  // NOLINT(google-explicit-constructor)
        for (std::size_t i = 0; i < N; ++i) { characters[i] = literal[i]; }
    }
    constexpr std::string_view view() const noexcept { return {characters, N - 1}; }
};

}  // namespace shardkit
