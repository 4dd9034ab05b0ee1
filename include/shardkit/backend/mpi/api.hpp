// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
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
    switch (bytes) {
        case 8:
            return MPI_UINT64_T;
        case 4:
            return MPI_UINT32_T;
        case 2:
            return MPI_UINT16_T;
        case 1:
            return MPI_UINT8_T;
        default:
            return MPI_DATATYPE_NULL;
    }
}

/// Returns the MPI type in which MPI adds such elements; none for 16-bit floating-point types, which it does not
/// know.
inline MPI_Datatype datatype(ElementType type) noexcept {
    switch (type) {
        case ElementType::fp64:
            return MPI_DOUBLE;
        case ElementType::fp32:
            return MPI_FLOAT;
        case ElementType::bf16:
        case ElementType::fp16:
            break;
        case ElementType::int64:
            return MPI_INT64_T;
        case ElementType::int32:
            return MPI_INT32_T;
        case ElementType::uint64:
            return MPI_UINT64_T;
        case ElementType::uint32:
            return MPI_UINT32_T;
        case ElementType::uint8:
            return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

}  // namespace shardkit::mpi::detail
