// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/lane_order.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/broadcast.hpp>

namespace shardkit::nccl {

/// An id that the ranks of one World share before they are connected. One rank creates it, and the others get its
/// bytes by any means (share_unique_id, Launcher).
class UniqueId {
  public:
    static constexpr std::size_t size = NCCL_UNIQUE_ID_BYTES;

    /// Creates an id.
    /// @throws CommError
    static UniqueId create(SourceLocation where = SourceLocation::current()) {
        detail::order_launches();
        ncclUniqueId id;
        detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId", "UniqueId", where);
        return UniqueId(id);
    }
    /// Makes an id from its bytes.
    /// @throws std::invalid_argument when there are not UniqueId::size bytes
    static UniqueId from_bytes(std::span<const std::byte> bytes, SourceLocation where = SourceLocation::current()) {
        if (bytes.size() != size) {
            throw_invalid_argument(where, "UniqueId: ", bytes.size(), " bytes given, expected ", size);
        }
        ncclUniqueId id;
        std::memcpy(id.internal, bytes.data(), size);
        return UniqueId(id);
    }
    explicit UniqueId(const ncclUniqueId& id) noexcept : id_(id) {}

    const ncclUniqueId& native() const noexcept { return id_; }
    std::span<const std::byte, size> bytes() const noexcept {
        return std::as_bytes(std::span<const char, size>(id_.internal));
    }

    friend bool operator==(const UniqueId& a, const UniqueId& b) noexcept {
        return std::ranges::equal(a.bytes(), b.bytes());
    }

  private:
    ncclUniqueId id_;
};

/// Creates a UniqueId on rank 0 and broadcasts it, over a communicator that works on host memory, for example MPI's.
///     mpi::World job;  nccl::World world{nccl::share_unique_id(shardkit::Communicator(job)), ...};
/// Collective; returns when the id has arrived.
/// @throws CommError on every rank when rank 0 cannot create it; what the communicator's broadcast throws
inline UniqueId share_unique_id(const shardkit::Communicator& comm, const Stream& stream = {},
                                SourceLocation where = SourceLocation::current()) {
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

}  // namespace shardkit::nccl
