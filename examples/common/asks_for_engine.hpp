// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace program {

/// Whether the flags name that --engine. Before they are checked: who prints what is wrong depends on it.
inline bool asks_for_engine(std::string_view engine, int count, const char* const* arguments) noexcept {
    constexpr std::string_view flag = "--engine";
    for (int i = 1; i < count; ++i) {
        const std::string_view argument(arguments[i]);
        const bool next = argument == flag && i + 1 < count && arguments[i + 1] == engine;
        const bool joined = argument.starts_with(flag) && argument.substr(flag.size()).starts_with('=') &&
                            argument.substr(flag.size() + 1) == engine;
        if (next || joined) { return true; }
    }
    return false;
}

}  // namespace program
