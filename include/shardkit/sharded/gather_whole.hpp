// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// Makes the gather of a row of the placement table: of `part`, or in place.
template <class Engine, class T>
void gather_row(const GroupCommunicators<Engine>& comms, const CollectiveRow& row, std::span<const T> part,
                std::span<T> whole, typename Engine::Stream stream, engine::CallSite site) {
    if (row.in_place()) {
        all_gather_in_place(comms[row.over], whole, stream, site);
    } else {
        all_gather(comms[row.over], part, whole, stream, site);
    }
}

/// Gathers a group's values into `full` from `part`, this rank's shard or its piece of that: a piece across groups
/// first, and then the shard within its group. Collective over the data ranks.
template <class Engine, class T>
void gather_whole(const GroupCommunicators<Engine>& comms, const GroupGeometry& group, std::span<const T> part,
                  std::span<T> full, typename Engine::Stream stream, engine::CallSite site) {
    if (group.pieces() == 1 || part.size() == group.own.size()) {
        return all_gather(comms.shards, part, full, stream, site);
    }
    all_gather(comms.replicas, part, full.subspan(group.own.begin, group.own.size()), stream, site);
    all_gather_in_place(comms.shards, full, stream, site);
}

}  // namespace shardkit::detail
