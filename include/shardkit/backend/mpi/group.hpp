// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/owned_comm.hpp>

namespace shardkit::mpi::detail {

/// What a rank keeps for one group of ranks, at an address that stays.
struct Group {
    MPI_Comm comm = MPI_COMM_NULL;
    OwnedComm owned;           ///< `comm`, unless it is the user's
    std::uint64_t number = 0;  ///< the same on all members, and no other group's
    std::size_t rank = 0;
    std::vector<std::size_t> world_ranks;
    std::uint64_t calls = 0;  ///< collectives that this rank has entered

    /// The digest of the call and its complement, reduced over the ranks. Here, because a reduction that is given
    /// up still writes to it.
    std::array<std::uint64_t, 2> digest{};

    /// Room for the `count` records of a gather among the ranks; here for the same reason.
    template <class Record>
    std::span<Record> records(std::size_t count) {
        record_bytes.resize(count * sizeof(Record));
        return {reinterpret_cast<Record*>(record_bytes.data()), count};
    }
    std::vector<std::byte> record_bytes;

    std::size_t size() const noexcept { return world_ranks.size(); }
};

}  // namespace shardkit::mpi::detail
