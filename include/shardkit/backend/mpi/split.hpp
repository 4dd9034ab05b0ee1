// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>

namespace shardkit::mpi::detail {

/// Collective over `call.group`: ranks with the same color form a group, ordered by key, then by rank.
/// Cost:    an all-gather of 24 bytes per rank, and MPI_Comm_split.
inline Group split_group(const Call& call, std::size_t color, std::size_t key) {
    struct Wish {
        std::uint64_t color;
        std::uint64_t key;
        std::uint64_t groups;  // made so far by this rank: with its number, a number for the group
    };
    struct Place {
        std::uint64_t key;
        std::size_t rank;
        auto operator<=>(const Place&) const = default;
    };
    Group& parent = call.group;
    const std::span<Wish> wishes = parent.records<Wish>(parent.size());
    wishes[parent.rank] = {color, key, call.world.groups_made()};
    constexpr int bytes = sizeof(Wish);
    call.world.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
        return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, wishes.data(), bytes, MPI_BYTE, parent.comm,
                              request);
    });

    std::vector<std::uint64_t> colors;
    std::vector<Place> members;
    for (std::size_t q = 0; q < wishes.size(); ++q) {
        colors.push_back(wishes[q].color);
        if (wishes[q].color == color) { members.push_back({wishes[q].key, q}); }
    }
    std::sort(members.begin(), members.end());
    std::sort(colors.begin(), colors.end());
    colors.erase(std::unique(colors.begin(), colors.end()), colors.end());

    Group made;
    for (const Place& member : members) { made.world_ranks.push_back(parent.world_ranks[member.rank]); }
    made.rank = static_cast<std::size_t>(std::find(members.begin(), members.end(), Place{key, parent.rank}) -
                                         members.begin());
    made.number = (made.world_ranks.front() + 1) << 32U | wishes[members.front().rank].groups;
    // MPI's colors are ints, so the order of the colors stands for them.
    const auto color_index = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
    MPI_Comm comm = MPI_COMM_NULL;
    call.check(MPI_Comm_split(parent.comm, static_cast<int>(color_index), static_cast<int>(made.rank), &comm),
               "MPI_Comm_split");
    made.owned = OwnedComm(comm);
    made.comm = comm;
    call.check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return made;
}

}  // namespace shardkit::mpi::detail
