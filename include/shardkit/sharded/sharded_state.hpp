// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <shardkit/detail/identity.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/sharded_options.hpp>

namespace shardkit::detail {

/// What the types of a group and its policy say, as values.
struct GroupValues {
    std::string path;
    std::span<const PlacedParameter> parameters;  ///< checked, not yet placed
    std::span<const ParameterName> all_names;     ///< of types; empty where the parameters' names are a list's
    PolicyValues policy;
    Packing packing = Packing::aligned;
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};
};

/// The parameters of `tensors`, checked, with what the options choose of them.
/// @throws as the checks of `tensors`
template <class Group, class Policy>
auto chosen_parameters(std::string_view path, const TensorsOf<Group>& tensors,
                       const ShardedOptions<Group, Policy>& options, SourceLocation where) {
    auto parameters = checked_parameters(path, tensors, where);
    for (std::size_t p = 0; p < parameters.size(); ++p) { options.choose(p, parameters[p]); }
    return parameters;
}
/// The names of a group's types, of its aliases too; none where it has no types.
template <class Group>
constexpr std::span<const ParameterName> names_of_types() noexcept {
    if constexpr (requires { Group::all_names; }) {
        return Group::all_names;
    } else {
        return {};
    }
}

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
/// @throws  as place_parameters and require_same_group; std::invalid_argument when the packing does not go with the
///          policy
template <class Engine, class Precision>
PlacedGroup place_group(Context<Engine>& context, const GroupCommunicators<Engine>& communicators,
                        GroupValues&& values, SourceLocation where) {
    check_rounding<Precision>(values, where);
    const AxisGrid& grid = context.grid();
    GroupGeometry g;
    g.path = std::move(values.path);
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

inline namespace SHARDKIT_BUILD {

/// What stands behind a Sharded at a stable address, so that windows and handles survive a move of it: a GroupState
/// and the types of its group and policy.
template <class GroupType, class PolicyType, class EngineType, class PrecisionType>
class ShardedState : public GroupState<EngineType, PrecisionType> {
    using Base = GroupState<EngineType, PrecisionType>;

  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using typename Base::Engine;
    using typename Base::Gather;
    using typename Base::Gradient;
    using typename Base::Precision;
    using Options = ShardedOptions<Group, Policy>;

    ShardedState(Context<Engine>& context, std::string path, const TensorsOf<Group>& tensors, const Options& options,
                 std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where)
        : ShardedState(
              context,
              make_communicators(context, path, policy_values(options.policy, context.grid().extent(Dp::name), where),
                                 where),
              std::move(path), tensors, options, adopted_parameters, adopted_gradients, where) {
        if (!adopted_parameters.empty()) {
            Base::hold(std::as_bytes(adopted_parameters), std::as_bytes(adopted_gradients), where);
        }
    }

    const Policy& policy() const noexcept { return policy_; }
    const FlatLayout& layout() const noexcept { return layout_; }
    /// Tells this group from any other of the process, whatever their addresses and paths.
    std::uint64_t identity() const noexcept { return identity_; }

  private:
    ShardedState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, std::string&& path,
                 const TensorsOf<Group>& tensors, const Options& options, std::span<Gather> adopted_parameters,
                 std::span<Gradient> adopted_gradients, SourceLocation where)
        : ShardedState(context, communicators,
                       place(context, std::move(path), communicators, tensors, options, where), options,
                       adopted_parameters, adopted_gradients) {}
    ShardedState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, PlacedGroup&& placed,
                 const Options& options, std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients)
        : Base(context, std::move(placed.group), communicators, adopted_parameters, adopted_gradients),
          policy_(options.policy),
          layout_(placed.layout) {}

    static PlacedGroup place(Context<Engine>& context, std::string&& path,
                             const GroupCommunicators<Engine>& communicators, const TensorsOf<Group>& tensors,
                             const Options& options, SourceLocation where) {
        const auto parameters = chosen_parameters<Group, Policy>(path, tensors, options, where);
        const PolicyValues policy = policy_values(options.policy, context.grid().extent(Dp::name), where);
        return place_group<Engine, Precision>(context, communicators,
                                              {std::move(path), parameters, names_of_types<Group>(), policy,
                                               options.packing, options.master, options.stochastic_rounding},
                                              where);
    }

    Policy policy_;
    FlatLayout layout_;
    std::uint64_t identity_ = detail::new_identity();
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit::detail
