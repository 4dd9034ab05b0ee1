// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_values.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

struct PlacedGroup {
    GroupCommunicators communicators;
    GroupGeometry group;
    layout::FlatLayout layout;
};

/// Makes a group's communicators, and places it on one rank of a mesh as they split it: all work that does not need
/// the group's types.
/// Order:   collective over the world; the host waits.
/// @throws  as make_communicators, check_shape, place_parameters and require_same_group; std::invalid_argument when
///          the packing does not go with the policy
inline PlacedGroup place_group(Rank& rank, const PrecisionValues& types, const GroupValues& values,
                               SourceLocation where) {
    const bool experts = !values.parameters.empty() && values.parameters[0].experts;
    const GroupCommunicators communicators = make_communicators(rank, values.path, values.policy, experts, where);
    for (std::size_t p = 0; p < values.fixed.size(); ++p) {
        const PlacedParameter& each = values.parameters[p];
        check_shape(values.path, each.name, each.shape, values.fixed[p], where);
    }
    require_summation(communicators, values.policy, values.path, where);
    const bool offloads = !host_reads(rank.compute_stream());
    if (values.offload != Offload::none && !offloads) {
        throw_invalid_argument(where, "'", values.path, "': an Offload on the engine '", rank.world().engine_name(),
                               "', whose memory is the host's already; expected Offload::none");
    }
    check_types(values.path, types, values.parameters, values.master, values.stochastic_rounding, where);
    const AxisGrid& grid = rank.grid();
    GroupGeometry g;
    g.parameters.append(values.parameters.data(), values.parameters.data() + values.parameters.size());
    g.aliases = values.all_names;
    if (values.all_names.empty()) {
        for (const PlacedParameter& p : g.parameters) { g.owned_names.emplace_back(p.name); }
        for (std::size_t p = 0; p < g.parameters.size(); ++p) { g.parameters[p].name = g.owned_names[p]; }
    }
    for (std::size_t p = 0; p < g.parameters.size(); ++p) {
        g.by_name.insert(g.place_by_name(g.parameters[p].name), p);
    }
    g.tp_index = grid.coordinate(Tp::name, rank.rank());
    g.ep_index = experts ? communicators.ep.rank() : 0;
    const DescribedGroup described =
        describe_on_mesh({.path = values.path,
                          .policy = values.policy,
                          .sizes = types.sizes_with(values.master),
                          .gradient_release = values.gradient_release,
                          .offload = values.offload},
                         {g.parameters.data(), g.parameters.size()}, grid, g.tp_index, g.ep_index,
                         layout::alignment_for(types.narrowest), values.packing, where);
    static_cast<GroupDescription&>(g) = described.group;
    g.GroupDescription::path = {};  // refers to the caller's string
    g.path = values.path;
    g.table = GroupRows(g);
    if (values.stochastic_rounding) {
        Fnv own;  // so that groups with one seed draw different bits
        own.add(values.stochastic_rounding->seed);
        own.add(g.path);
        g.stochastic_rounding = StochasticRounding{own.hash};
    }
    g.shard_index = communicators.shards.rank();
    g.replica_index = communicators.replicas.rank();
    g.own = g.shard(g.shard_index);
    g.piece = g.range_of(g.place());
    g.updated = g.range(g.table.updated);
    require_same_group(rank, g, where);
    return {communicators, std::move(g), described.layout};
}

/// Prepares the engine for a group's reductions. Gives them channels of their own where other communication over the
/// same ranks could delay them: the group's gathers, and over tp the layers' own collectives. Lets an engine that
/// widens addends, or collects them, have memory for it. Collective over the mesh.
inline void prepare_reductions(const GroupGeometry& geometry, const GroupCommunicators& comms, SourceLocation where) {
    const bool no_tp_sum = intersect(geometry.range(geometry.table.reduced), geometry.tp_sum).empty();
    const auto size_of = [&](Over over) { return comms[over].size(); };
    for (const CollectiveRow& row : geometry.table.collectives()) {
        if (row.verb == Verb::all_gather || (row.extent == Extent::tp_sum && no_tp_sum)) { continue; }
        if (row.over == Over::tp || gathers_over(row.over, geometry.table, size_of)) {
            comms[row.over].separate_reductions(where);
        }
    }
    const std::size_t bytes = staged_bytes(geometry, comms.data.traits());
    if (bytes > 0) { comms.data.reserve_staging(bytes, where); }
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
