// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/verb.hpp>
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
        const auto size_of = [&](Over over) { return comms[over].size(); };
        for (const CollectiveRow& row : geometry.table.collectives()) {
            if (row.verb == Verb::all_gather || (row.extent == Extent::tp_sum && no_tp_sum)) { continue; }
            if (row.over == Over::tp || gathers_over(row.over, geometry.table, size_of)) {
                comms[row.over].separate_reductions(where);
            }
        }
    }
    if constexpr (engine::StagesReductions<typename Engine::Communicator>) {
        const std::size_t bytes = staged_bytes(geometry, comms.data.traits());
        if (bytes > 0) { comms.data.reserve_staging(bytes, where); }
    }
}

}  // namespace shardkit::detail
