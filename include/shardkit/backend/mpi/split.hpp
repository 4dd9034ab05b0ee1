// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/blocking_call.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/split_groups.hpp>

namespace shardkit::mpi::detail {

/// Splits a group, collectively over `call.group`: ranks with the same color form a group, ordered by key, then by
/// rank. A group that no member uses any more is reused: MPI has few communicators, and freeing one needs all of its
/// ranks at the same time.
/// Cost:    all-gathers of 24 and 64 bytes per rank. A new group also costs MPI_Comm_split, which blocks, and with
/// two
///          lanes MPI_Comm_idup: no lane may have work in progress.
inline Group& split_group(const Call& call, std::size_t color, std::size_t key) {
    struct Wish {
        std::uint64_t color;
        std::uint64_t key;
        std::uint64_t groups;  // number of groups made so far by this rank: with its rank, a number for the group
    };
    Group& parent = call.group;
    const std::vector<Wish> wishes = call.lane.gather(call, Wish{color, key, call.world.groups_made()});

    const shared::detail::SplitGroups split(wishes, parent.rank);
    Group made;
    for (const std::size_t member : split.members) { made.world_ranks.push_back(parent.world_ranks[member]); }
    made.rank = split.place;
    made.number = (made.world_ranks.front() + 1) << 32U | wishes[split.members.front()].groups;

    const auto reused = shared::detail::idle_for_all(
        split.group_of, split.count, call.lane.gather(call, call.world.idle_groups(made.world_ranks)));
    const std::uint64_t own = reused[split.own()];
    if (std::find(reused.begin(), reused.end(), std::uint64_t{0}) == reused.end()) {
        return call.world.group_of(own);
    }
    // MPI's colors are ints: the index of a color is used instead of the color.
    MPI_Comm comm = MPI_COMM_NULL;
    {
        // All ranks are here, as they have gathered: only one that ends now keeps the others.
        const BlockingCall bounded("MPI_Comm_split", call.doing(),
                                   call.world.journal().limit(call.world.options().timeout), call.where);
        call.mpi().check(MPI_Comm_split(call.channel.comm, own != 0 ? MPI_UNDEFINED : static_cast<int>(split.own()),
                                        static_cast<int>(made.rank), &comm),
                         "MPI_Comm_split");
    }
    if (own != 0) { return call.world.group_of(own); }
    call.mpi().check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    made.add_channel(OwnedComm(comm));
    Group& added = call.world.add_group(std::move(made), call);
    call.world.meet(call.world.call(call.lane, added, call.axes, call));
    return added;
}

}  // namespace shardkit::mpi::detail
