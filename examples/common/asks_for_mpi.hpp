// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace program {

/// Whether the flags name --engine mpi. Before they are checked: MPI must be there to say who prints what is wrong.
inline bool asks_for_mpi(int count, const char* const* arguments) noexcept {
    for (int i = 1; i < count; ++i) {
        const std::string_view argument(arguments[i]);
        const bool next = argument == "--engine" && i + 1 < count && std::string_view(arguments[i + 1]) == "mpi";
        if (next || argument == "--engine=mpi") { return true; }
    }
    return false;
}

}  // namespace program
