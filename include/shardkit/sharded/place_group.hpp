// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/precision.hpp>
#include <shardkit/sharded/sharded_options.hpp>

namespace shardkit::detail {

/// What the types of a group and its policy say, as values.
struct GroupValues {
    std::string_view path;
    std::span<const PlacedParameter> parameters;            ///< not yet placed
    std::span<const std::span<const std::size_t>> fixed{};  ///< extents of each that its type fixes, to be checked
    std::span<const ParameterName> all_names{};  ///< of types; empty where the parameters' names are a list's
    PolicyValues policy{};
    Packing packing = Packing::aligned;
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};
};

/// Refuses a choice of master and rounding that a Precision does not have.
template <class Precision>
void check_rounding(const GroupValues& group, SourceLocation where) {
    using Gather = typename Precision::Gather;
    const bool kept = Precision::has_master && group.master == MasterWeights::kept;
    if (group.master == MasterWeights::none && Precision::has_master && !can_drop_master<Precision>) {
        throw_invalid_argument(where, "'", group.path, "': MasterWeights::none with ",
                               name(element_type_of<typename Precision::Master>), " masters of ",
                               name(element_type_of<Gather>),
                               " parameters, expected kept: updates are computed in the master's arithmetic");
    }
    if (group.stochastic_rounding && (kept || sizeof(Gather) != 2)) {
        throw_invalid_argument(where, "'", group.path, "': stochastic rounding of ", name(element_type_of<Gather>),
                               " parameters ", kept ? "with" : "without",
                               " a master, expected 16-bit parameters and MasterWeights::none");
    }
}

struct PlacedGroup {
    GroupGeometry group;
    FlatLayout layout;
};

/// A group on one rank of a mesh, as its communicators cut it: everything that does not need its types.
/// Order:   collective over the world; the host waits.
/// @throws  as check_shape, place_parameters and require_same_group; std::invalid_argument when the packing does not
///          go with the policy
template <class Engine, class Precision>
PlacedGroup place_group(Context<Engine>& context, const GroupCommunicators<Engine>& communicators,
                        const GroupValues& values, SourceLocation where) {
    for (std::size_t p = 0; p < values.fixed.size(); ++p) {
        const PlacedParameter& each = values.parameters[p];
        check_shape(values.path, each.name, each.shape, values.fixed[p], where);
    }
    check_rounding<Precision>(values, where);
    const AxisGrid& grid = context.grid();
    GroupGeometry g;
    g.path = values.path;
    g.policy = values.policy;
    g.parameters.assign(values.parameters.begin(), values.parameters.end());
    g.aliases = values.all_names;
    if (values.all_names.empty()) {
        for (const PlacedParameter& p : g.parameters) { g.owned_names.emplace_back(p.name); }
        for (std::size_t p = 0; p < g.parameters.size(); ++p) { g.parameters[p].name = g.owned_names[p]; }
    }
    const FlatLayout layout =
        place_parameters(g.path, g.parameters,
                         {grid.extent(Tp::name), grid.coordinate(Tp::name, context.rank()),
                          communicators.shards.size(), alignment_for(Precision::narrowest), values.packing},
                         where);
    if (g.policy.optimizer == Placement::sharded && values.packing == Packing::exact) {
        throw_invalid_argument(where, "'", g.path, "': Packing::exact given, but ", g.policy.name,
                               " shards; expected aligned or packed");
    }
    g.trainable = trainable(g.parameters);
    g.sizes = element_sizes<Precision>(values.master);
    g.table = placement_table(g.policy, g.sizes, g.trainable);
    g.alike = likeness(g.parameters, values.packing, g.policy, g.sizes);
    if (values.stochastic_rounding) {
        Fnv own;  // groups of one seed draw different bits
        own.add(values.stochastic_rounding->seed);
        own.add(g.path);
        g.stochastic_rounding = StochasticRounding{own.hash};
    }
    g.buffer_numel = layout.buffer_numel();
    g.shard_numel = layout.shard_numel();
    g.shards = layout.shards();
    g.shard_index = communicators.shards.rank();
    g.replicas = communicators.replicas.size();
    g.replica_index = communicators.replicas.rank();
    g.tp_size = communicators.tp.size();
    g.tp_index = communicators.tp.rank();
    g.tp_sum = tp_sum(g.parameters, g.tp_size);
    g.own = layout.shard(g.shard_index);
    g.updated = g.range(g.table.updated);
    require_same_group(context, g, where);
    return {std::move(g), layout};
}

}  // namespace shardkit::detail
