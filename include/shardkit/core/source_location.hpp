// SPDX-License-Identifier: Apache-2.0
#pragma once

// Nearly every header includes this one first.
#include <shardkit/detail/needs_compiler.inc>

#include <cstdint>

namespace shardkit {

/// The caller's file and line: a defaulted last parameter of every verb, passed on so that an error names the user's
/// line instead of the library's. It is an own type because clang 14 with libstdc++ 12 has no std::source_location.
struct SourceLocation {
    const char* file = "";
    std::uint32_t line = 0;

    static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                            std::uint32_t line = __builtin_LINE()) noexcept {
        return {file, line};
    }
};

}  // namespace shardkit
