// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

#include "started_by_mpirun.hpp"

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

/// Whether this process is to join the processes of an MPI job: a plan that nobody launched needs none.
inline bool joins_mpi_job(int count, const char* const* arguments) noexcept {
    const bool plans = std::any_of(arguments, arguments + count,
                                   [](const char* argument) { return std::string_view(argument) == "--plan"; });
    return asks_for_engine("mpi", count, arguments) && (started_by_mpirun() || !plans);
}

}  // namespace program
