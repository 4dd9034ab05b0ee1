// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/split_groups.hpp>

namespace shardkit::mpi::detail {

/// Splits a group, collectively over `call.group`: ranks with the same color form a group, ordered by key, then by
/// rank. A group that no member uses any more is reused: MPI has few communicators, and freeing one needs all of its
/// ranks at the same time.
/// Cost:    an all-gather of 32 bytes per rank, and one of 64 bytes if all members of a group have idle ones; if a
///          group is new, MPI_Comm_split, which blocks, and with two lanes MPI_Comm_idup: no lane may have work in
///          progress.
inline Group& split_group(const Call& call, std::size_t color, std::size_t key) {
    Group& parent = call.group;
    const auto world_ranks_of = [&](const std::vector<std::size_t>& members) {
        std::vector<std::size_t> ranks;
        for (const std::size_t member : members) { ranks.push_back(parent.world_ranks[member]); }
        return ranks;
    };
    const shared::detail::ReusingSplit split(
        {color, key, call.world.next_number(), call.world.has_idle() ? 1U : 0U}, parent.rank, 1,
        [&](const auto& record) { return call.lane.gather(call, record); },
        [&](const std::vector<std::size_t>& members) { return call.world.idle_groups(world_ranks_of(members)); });
    if (!split.makes) { return call.world.group_of(split.again); }
    Group made;
    made.world_ranks = world_ranks_of(split.members);
    made.rank = split.place;
    made.number = split.number;
    // MPI's colors are ints: the index of a color is used instead of the color.
    MPI_Comm comm = MPI_COMM_NULL;
    {
        // All ranks are here, as they have gathered: only one that ends now keeps the others.
        const BlockingCall bounded("MPI_Comm_split", call.doing(),
                                   call.world.journal().limit(call.world.options().timeout), call.where);
        call.mpi().check(
            MPI_Comm_split(call.channel.comm, split.again != 0 ? MPI_UNDEFINED : static_cast<int>(split.own()),
                           static_cast<int>(made.rank), &comm),
            "MPI_Comm_split");
    }
    if (split.again != 0) { return call.world.group_of(split.again); }
    call.mpi().check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    made.add_channel(OwnedComm(comm));
    Group& added = call.world.add_group(std::move(made), call);
    call.world.meet(call.world.call(call.lane, added, call.axes, call));
    return added;
}

}  // namespace shardkit::mpi::detail
