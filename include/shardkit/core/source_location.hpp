// SPDX-License-Identifier: Apache-2.0
#pragma once

// Nearly every header begins with this one.
#include <shardkit/detail/needs_compiler.inc>

#include <cstdint>

namespace shardkit {

/// Holds the caller's file and line. It is a defaulted last parameter of every verb, passed down so that an error
/// names the user's line and not the library's. Own type because std::source_location is missing under clang 14 with
/// libstdc++ 12.
struct SourceLocation {
    const char* file = "";
    std::uint32_t line = 0;

    static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                            std::uint32_t line = __builtin_LINE()) noexcept {
        return {file, line};
    }
};

}  // namespace shardkit
