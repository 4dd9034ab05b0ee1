// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

// Only the C interface: the C++ one was removed in MPI 3.0, costs compile time and needs a library of its own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <mpi.h>

namespace shardkit::mpi::detail {

/// Checks a result of MPI.
/// @throws CommError with MPI's text, the verb and axes in `doing`, the MPI call and the caller's line, unless `code`
///         is MPI_SUCCESS
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

/// Returns the MPI type of words of so many bytes, as which MPI moves elements.
inline MPI_Datatype word_type(std::size_t bytes) noexcept {
    return bytes == 8   ? MPI_UINT64_T
           : bytes == 4 ? MPI_UINT32_T
           : bytes == 2 ? MPI_UINT16_T
           : bytes == 1 ? MPI_UINT8_T
                        : MPI_DATATYPE_NULL;
}

/// Returns the MPI type in which MPI adds such elements; none for 16-bit floating-point types, which it does not
/// know.
inline MPI_Datatype datatype(ElementType type) noexcept {
    const MPI_Datatype types[] = {MPI_DOUBLE,  MPI_FLOAT,    MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_INT64_T,
                                  MPI_INT32_T, MPI_UINT64_T, MPI_UINT32_T,      MPI_UINT8_T};
    return types[static_cast<std::size_t>(type)];
}

}  // namespace shardkit::mpi::detail
