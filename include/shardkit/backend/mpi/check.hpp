// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// Throws unless `code` is MPI_SUCCESS.
/// @throws CommError with MPI's text, the verb and axes in `doing`, the MPI call and the caller's line
inline void check(int code, std::string_view call, std::string_view doing, SourceLocation where) {
    if (code == MPI_SUCCESS) { return; }
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) { length = 0; }
    throw CommError("mpi", doing,
                    shardkit::detail::concat(call, " returned ", code, ": ",
                                             std::string_view(text, static_cast<std::size_t>(length))),
                    where);
}

}  // namespace shardkit::mpi::detail
