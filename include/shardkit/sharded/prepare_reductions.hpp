// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/plan/group_rows.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// Prepares the engine for a group's reductions. Gives them channels of their own where other communication over the
/// same ranks could delay them: the group's gathers, and over tp the layers' own collectives. Lets an engine that
/// widens addends, or collects them, have memory for it. Collective over the mesh.
template <class Engine>
void prepare_reductions(const GroupGeometry& geometry, const GroupCommunicators<Engine>& comms,
                        SourceLocation where) {
    if constexpr (engine::SeparatesReductions<typename Engine::Communicator>) {
        const bool no_tp_sum = intersect(geometry.range(geometry.table.reduced), geometry.tp_sum).empty();
        const auto all = geometry.table.collectives();
        const bool gathers = any_that(all, [](const CollectiveRow& row) { return row.verb == Verb::all_gather; });
        for (const CollectiveRow& row : all) {
            if (row.verb == Verb::all_gather || (row.extent == Extent::tp_sum && no_tp_sum)) { continue; }
            const auto& over = comms[row.over];
            // The gather runs over the shard group.
            const bool gathered = gathers && row.over != Over::replicas && over.size() == comms.shards.size();
            if (gathered || row.over == Over::tp) { over.separate_reductions(where); }
        }
    }
    if constexpr (engine::StagesReductions<typename Engine::Communicator>) {
        const std::size_t bytes = staged_bytes(geometry, comms.data.traits());
        if (bytes > 0) { comms.data.reserve_staging(bytes, where); }
    }
}

}  // namespace shardkit::detail
