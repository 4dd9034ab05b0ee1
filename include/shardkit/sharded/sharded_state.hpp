// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <shardkit/param/tensor_view.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/placed_parameters.hpp>
#include <shardkit/sharded/sharded_options.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// What stands behind a Sharded at a stable address, so that windows and handles survive a move of it: a GroupState
/// and the types of its parameters.
template <class GroupType, class PolicyType, class EngineType, class PrecisionType>
class ShardedState : PlacedParameters<GroupType>, public GroupState<EngineType, PrecisionType> {
    using Placed = PlacedParameters<GroupType>;
    using Base = GroupState<EngineType, PrecisionType>;

  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using typename Base::Engine;
    using typename Base::Gather;
    using typename Base::Gradient;
    using typename Base::Precision;
    using Options = ShardedOptions<Group, Policy>;

    ShardedState(Context<Engine>& context, std::string path, const Shapes<Group>& shapes, const Options& options,
                 std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where)
        : ShardedState(context, detail::make_communicators(context, path, options.policy, where), std::move(path),
                       shapes, options, adopted_parameters, adopted_gradients, where) {}

    const Policy& policy() const noexcept { return policy_; }
    const Shapes<Group>& shapes() const noexcept { return Placed::shapes; }
    const FlatLayout<Group::count>& layout() const noexcept { return Placed::layout; }
    const Placed& placed() const noexcept { return *this; }

    template <class P, class T>
    TensorView<T> view(T* full, const std::uint64_t& generation, SourceLocation opened) const {
        constexpr std::size_t p = Group::template index<P>;
        return {full + layout().offset(p), Placed::parts[p].shape(), generation, opened};
    }

  private:
    ShardedState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, std::string&& path,
                 const Shapes<Group>& shapes, const Options& options, std::span<Gather> adopted_parameters,
                 std::span<Gradient> adopted_gradients, SourceLocation where)
        : Placed(path, shapes, context.grid(), context.rank(), communicators.shards.size(),
                 alignment_for(Precision::narrowest), options.packing),
          Base(context, place(context.grid(), std::move(path), communicators, options, where), communicators,
               adopted_parameters, adopted_gradients),
          policy_(options.policy) {}

    GroupGeometry place(const AxisGrid& grid, std::string&& path, const GroupCommunicators<Engine>& communicators,
                        const Options& options, SourceLocation where) const {
        if (options.policy.optimizer == Placement::sharded && options.packing == Packing::exact) {
            throw_invalid_argument(where, "'", path, "': Packing::exact given, but ", options.policy.name,
                                   " shards; expected aligned or packed");
        }
        GroupGeometry g;
        g.path = std::move(path);
        g.policy = policy_traits(options.policy, grid.extent(Dp::name), grid.extent(Cp::name));
        g.names = Group::names;
        g.shapes = shapes().all();
        g.tp_placements = Group::tp_placements;
        g.parts = Placed::parts;
        g.ranges = layout().ranges();
        g.frozen.resize(Group::count);
        for (std::size_t p = 0; p < Group::count; ++p) { g.frozen[p] = options.frozen[p]; }
        g.buffer_numel = layout().buffer_numel();
        g.shard_numel = layout().shard_numel();
        g.shards = layout().shards();
        g.shard_index = communicators.shards.rank();
        g.replicas = communicators.replicas.size();
        g.replica_index = communicators.replicas.rank();
        g.tp_size = communicators.tp.size();
        g.tp_index = communicators.tp.rank();
        g.tp_sum = Placed::tp_sum();
        g.own = layout().shard(g.shard_index);
        g.updated = options.policy.optimizer == Placement::sharded ? g.own : IndexRange{0, g.buffer_numel};
        g.trainable = !options.frozen.all();
        return g;
    }

    Policy policy_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
