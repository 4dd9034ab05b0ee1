// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/check.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi {
class World;
}

namespace shardkit::mpi::detail {

/// One call of a verb on one rank.
struct Call {
    World& world;
    Group& group;
    const std::string& axes;
    Signature signature;
    SourceLocation where;
    const CallSubject* subject = nullptr;
    std::uint64_t sequence = 0;  ///< collectives of the group before this one

    std::string doing() const { return shardkit::detail::concat(name(signature.verb), " over ", axes); }
    /// @throws CommError unless `code` is MPI_SUCCESS
    void check(int code, std::string_view mpi_call) const {
        if (code != MPI_SUCCESS) { mpi::detail::check(code, mpi_call, doing(), where); }
    }
};

}  // namespace shardkit::mpi::detail
