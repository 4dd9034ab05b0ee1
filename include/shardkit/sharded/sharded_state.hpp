// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Fills in the parameters of a group on one rank of a mesh, and how its buffer is cut.
/// @throws as the checks of `tensors` and place_parameters
template <class Group, class Policy>
FlatLayout place_group(GroupGeometry& group, const TensorsOf<Group>& tensors,
                       const ShardedOptions<Group, Policy>& options, const AxisGrid& mesh, std::size_t rank,
                       std::size_t shards, std::size_t alignment, SourceLocation where) {
    const auto checked = checked_parameters(group.path, tensors, where);
    group.parameters.assign(checked.begin(), checked.end());
    for (std::size_t p = 0; p < group.parameters.size(); ++p) { options.choose(p, group.parameters[p]); }
    if constexpr (requires { Group::all_names; }) {
        group.aliases = Group::all_names;
    } else {
        for (const PlacedParameter& p : group.parameters) { group.owned_names.emplace_back(p.name); }
        for (std::size_t p = 0; p < group.parameters.size(); ++p) { group.parameters[p].name = group.owned_names[p]; }
    }
    return place_parameters(
        group.path, group.parameters,
        {mesh.extent(Tp::name), mesh.coordinate(Tp::name, rank), shards, alignment, options.packing}, where);
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
              std::move(path), tensors, options, adopted_parameters, adopted_gradients, where) {}

    const Policy& policy() const noexcept { return policy_; }
    const FlatLayout& layout() const noexcept { return layout_; }
    /// Tells this group from any other of the process, whatever their addresses and paths.
    std::uint64_t identity() const noexcept { return identity_; }

  private:
    struct Placed {
        GroupGeometry group;
        FlatLayout layout;
    };

    ShardedState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, std::string&& path,
                 const TensorsOf<Group>& tensors, const Options& options, std::span<Gather> adopted_parameters,
                 std::span<Gradient> adopted_gradients, SourceLocation where)
        : ShardedState(context, communicators,
                       place(context, std::move(path), communicators, tensors, options, where), options,
                       adopted_parameters, adopted_gradients) {}
    ShardedState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, Placed&& placed,
                 const Options& options, std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients)
        : Base(context, std::move(placed.group), communicators, adopted_parameters, adopted_gradients),
          policy_(options.policy),
          layout_(placed.layout) {}

    static Placed place(Context<Engine>& context, std::string&& path, const GroupCommunicators<Engine>& communicators,
                        const TensorsOf<Group>& tensors, const Options& options, SourceLocation where) {
        const AxisGrid& grid = context.grid();
        GroupGeometry g;
        g.path = std::move(path);
        const FlatLayout layout = place_group(g, tensors, options, grid, context.rank(), communicators.shards.size(),
                                              alignment_for(Precision::narrowest), where);
        g.policy = policy_values(options.policy, grid.extent(Dp::name), where);
        if (g.policy.optimizer == Placement::sharded && options.packing == Packing::exact) {
            throw_invalid_argument(where, "'", g.path, "': Packing::exact given, but ", g.policy.name,
                                   " shards; expected aligned or packed");
        }
        g.trainable = trainable(g.parameters);
        g.table = placement_table(g.policy, element_sizes<Precision>(), g.trainable);
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

    Policy policy_;
    FlatLayout layout_;
    std::uint64_t identity_ = detail::new_identity();
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit::detail
