// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/check.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl {

/// Holds what the ranks of one World must share before they are connected: one rank creates it, the others get its
/// bytes by whatever brings them there (see share_unique_id.hpp and Launcher).
class UniqueId {
  public:
    static constexpr std::size_t size = NCCL_UNIQUE_ID_BYTES;

    /// Creates an id.
    /// @throws CommError
    static UniqueId create(SourceLocation where = SourceLocation::current()) {
        ncclUniqueId id;
        detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId", "UniqueId", where);
        return UniqueId(id);
    }
    /// Makes the id of its bytes.
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

}  // namespace shardkit::nccl
