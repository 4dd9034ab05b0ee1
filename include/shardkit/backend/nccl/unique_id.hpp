// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl SHARDKIT_FACE {

/// An id that the ranks of one World share before they are connected. One rank creates it, and the others get its
/// bytes from a Launcher or by any means, for example by MPI:
///     MPI_Bcast(id.bytes.data(), sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
struct UniqueId {
    std::array<std::byte, 128> bytes{};  ///< of an ncclUniqueId

    /// Creates an id.
    /// @throws CommError
    static UniqueId create(SourceLocation where = SourceLocation::current());

    friend bool operator==(const UniqueId&, const UniqueId&) noexcept = default;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <bit>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/lane_order.hpp>

namespace shardkit::nccl SHARDKIT_FACE {

/// Returns an id as NCCL's own functions take it.
inline ncclUniqueId native(const UniqueId& id) noexcept { return std::bit_cast<ncclUniqueId>(id.bytes); }

SHARDKIT_CORE_INLINE UniqueId UniqueId::create(SourceLocation where) {
    detail::order_launches();
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId", "UniqueId", where);
    return {std::bit_cast<decltype(bytes)>(id)};
}

}  // namespace SHARDKIT_FACE
#endif
