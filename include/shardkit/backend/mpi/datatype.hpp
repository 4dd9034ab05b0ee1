// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::mpi::detail {

/// The MPI type that elements of T travel as. Sixteen-bit floating types, which MPI does not know, travel as 16-bit
/// words: MPI moves them, but must not add them.
template <Element T>
MPI_Datatype datatype() noexcept {
    switch (element_type_of<T>) {
        case ElementType::fp64:
            return MPI_DOUBLE;
        case ElementType::fp32:
            return MPI_FLOAT;
        case ElementType::bf16:
        case ElementType::fp16:
            return MPI_UINT16_T;
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
