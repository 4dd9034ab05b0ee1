// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Prints an error that a destructor finds and nobody can handle, and ends the program, as std::thread's destructor
/// does: otherwise memory that is still in use would be freed.
template <class... Pieces>
[[noreturn, gnu::cold, gnu::noinline]] void end_program(const Pieces&... pieces) noexcept {
    std::fprintf(stderr, "shardkit: %s\n", concat(pieces...).c_str());
    std::abort();
}

}  // namespace shardkit::detail
