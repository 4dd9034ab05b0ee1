// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {
class Communicator;
}

namespace shardkit::nccl SHARDKIT_FACE {

/// An id that the ranks of one World share before they are connected. One rank creates it, and the others get its
/// bytes by any means (share_unique_id, Launcher).
class UniqueId {
  public:
    static constexpr std::size_t size = 128;  // NCCL_UNIQUE_ID_BYTES

    /// Creates an id.
    /// @throws CommError
    static UniqueId create(SourceLocation where = SourceLocation::current());
    /// Makes an id from its bytes.
    /// @throws std::invalid_argument when there are not UniqueId::size bytes
    static UniqueId from_bytes(std::span<const std::byte> bytes, SourceLocation where = SourceLocation::current());

    std::span<const std::byte, size> bytes() const noexcept { return bytes_; }

    friend bool operator==(const UniqueId&, const UniqueId&) noexcept = default;

  private:
    UniqueId() = default;

    std::array<std::byte, size> bytes_{};
};

/// Creates a UniqueId on rank 0 and broadcasts it, over a communicator that works on host memory, for example MPI's.
///     mpi::World job;  nccl::World world{nccl::share_unique_id(shardkit::Communicator(job)), ...};
/// Collective; returns when the id has arrived.
/// @throws CommError on every rank when rank 0 cannot create it; what the communicator's broadcast throws
UniqueId share_unique_id(const shardkit::Communicator& comm, const Stream& stream = {},
                         SourceLocation where = SourceLocation::current());

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/lane_order.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/broadcast.hpp>

namespace shardkit::nccl SHARDKIT_FACE {

static_assert(UniqueId::size == sizeof(ncclUniqueId));

/// Returns an id as NCCL's own functions take it.
inline ncclUniqueId native(const UniqueId& id) noexcept {
    ncclUniqueId made;
    std::memcpy(made.internal, id.bytes().data(), UniqueId::size);
    return made;
}

SHARDKIT_CORE_INLINE UniqueId UniqueId::create(SourceLocation where) {
    detail::order_launches();
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId", "UniqueId", where);
    return from_bytes(std::as_bytes(std::span(id.internal)), where);
}
SHARDKIT_CORE_INLINE UniqueId UniqueId::from_bytes(std::span<const std::byte> bytes, SourceLocation where) {
    if (bytes.size() != size) {
        throw_invalid_argument(where, "UniqueId: ", bytes.size(), " bytes given, expected ", size);
    }
    UniqueId made;
    std::ranges::copy(bytes, made.bytes_.begin());
    return made;
}

SHARDKIT_CORE_INLINE UniqueId share_unique_id(const shardkit::Communicator& comm, const Stream& stream,
                                              SourceLocation where) {
    std::optional<UniqueId> id;
    std::exception_ptr error;
    if (comm.rank() == 0) {
        try {
            id = UniqueId::create(where);
        } catch (...) { error = std::current_exception(); }
    }
    std::array<std::uint8_t, UniqueId::size + 1> message{};  // the last byte says whether there is an id
    if (id) {
        std::ranges::transform(id->bytes(), message.begin(),
                               [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
        message.back() = 1;
    }
    broadcast(comm, std::span<std::uint8_t>(message), 0, stream, where);
    stream.synchronize();
    if (error) { std::rethrow_exception(error); }
    if (message.back() != 1) { throw CommError("nccl", "share_unique_id", "rank 0 could not create the id", where); }
    return UniqueId::from_bytes(std::as_bytes(std::span<const std::uint8_t>(message)).first(UniqueId::size), where);
}

}  // namespace SHARDKIT_FACE
#endif
