// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/layout/segments.hpp>
#include <shardkit/mesh/engine_table.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/sharded/gradient_store.hpp>
#include <shardkit/sharded/parameter_store.hpp>
#include <shardkit/sharded/precision.hpp>
#include <shardkit/sharded/sharded_options.hpp>
#include <shardkit/sharded/step_state.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// What stands behind a Sharded at a stable address, so that windows and handles survive a move of it.
template <class GroupType, class PolicyType, class EngineType, class PrecisionType>
class ShardedState {
  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using Engine = EngineType;
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;

    ShardedState(Context<Engine>& context, std::string path, const Shapes<Group>& shapes,
                 const ShardedOptions<Group, Policy>& options, std::span<Gather> adopted_parameters,
                 std::span<Gradient> adopted_gradients, SourceLocation where)
        : context_(context),
          policy_(options.policy),
          shapes_(shapes),
          frozen_(options.frozen),
          comms_(communicators(context, path, options.policy, where)),
          layout_(shapes.numels(), comms_.shards.size(), alignment_for(Precision::narrowest), options.packing),
          geometry_(geometry(std::move(path))),
          parameters_(context, geometry_, comms_.shards, adopted_parameters),
          gradients_(context, geometry_, comms_, adopted_gradients) {
        if (Policy::optimizer == Placement::sharded && options.packing == Packing::exact) {
            throw_invalid_argument(where, "'", geometry_.path, "': Packing::exact given, but ", Policy::name,
                                   " shards; expected aligned or packed");
        }
        std::vector<IndexRange> own;
        for_each_segment(layout_, geometry_.own, [&](Segment s) {
            if (!frozen_[s.parameter]) { own.push_back(relative_to(s.flat, gradients_.reduced_range().begin)); }
        });
        own_segments_ = EngineTable<Engine, IndexRange>(context, std::span<const IndexRange>(own));
    }
    /// Waits for what the streams still do with this group's memory. An error of theirs that nobody waited for is
    /// dropped: a destructor has nobody to tell.
    ~ShardedState() {
        try {
            context_.communication_stream().synchronize();
            context_.compute_stream().synchronize();
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }
    ShardedState(const ShardedState&) = delete;
    ShardedState& operator=(const ShardedState&) = delete;

    Context<Engine>& context() noexcept { return context_; }
    const Policy& policy() const noexcept { return policy_; }
    const std::string& path() const noexcept { return geometry_.path; }
    const Shapes<Group>& shapes() const noexcept { return shapes_; }
    const FlatLayout<Group::count>& layout() const noexcept { return layout_; }
    const GroupGeometry& geometry() const noexcept { return geometry_; }
    const typename Group::Mask& frozen() const noexcept { return frozen_; }
    bool trainable() const noexcept { return geometry_.trainable; }

    ParameterStore<Engine, Policy, Precision>& parameters() noexcept { return parameters_; }
    GradientStore<Engine, Policy, Precision>& gradients() noexcept { return gradients_; }
    StepState& step() noexcept { return step_; }
    std::uint64_t& gradient_generation() noexcept { return gradient_generation_; }

    /// Trainable elements of this rank's (virtual) shard, as places in its reduced gradients; the engine's memory.
    std::span<const IndexRange> own_segments() const noexcept { return own_segments_.span(); }

    /// Ranks over which gradients are averaged by `mean`: dp x cp.
    std::size_t data_ranks() const noexcept { return comms_.data.size(); }
    /// 0 on the one rank, among those that hold the same shard, that counts it in sums over the world.
    std::size_t replica() const {
        return comms_.replicas.rank() +
               comms_.replicas.size() * context_.grid().coordinate(Tp::name, context_.rank());
    }
    const typename Engine::Communicator& shard_communicator() const noexcept { return comms_.shards; }

    template <class P, class T>
    TensorView<T> view(T* full, const std::uint64_t& generation) const {
        return {full + layout_.offset(Group::template index<P>), shapes_[Group::template index<P>], generation};
    }

    /// Sets one parameter from value_at(index in the parameter) -> double, in every buffer of this rank.
    template <class ValueAt>
    void write(std::size_t parameter, ValueAt value_at) {
        parameters_.begin_update();
        if (Precision::has_master && geometry_.trainable) {
            write_range(parameter, parameters_.master(), geometry_.updated.begin, value_at);
        }
        write_range(parameter, parameters_.resting(), parameters_.resting_range().begin,
                    [&](std::size_t i) { return static_cast<double>(to_master(value_at(i))); });
        parameters_.end_write();
    }

  private:
    using Comms = typename GradientStore<Engine, Policy, Precision>::Communicators;

    static Arithmetic<Master> to_master(double value) {
        return static_cast<Arithmetic<Master>>(static_cast<Master>(static_cast<Arithmetic<Master>>(value)));
    }

    static Comms communicators(Context<Engine>& context, const std::string& path, const Policy& policy,
                               SourceLocation where) {
        if (path.empty()) {
            throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'");
        }
        const std::size_t dp = context.grid().extent(Dp::name);
        const std::size_t group = policy.shard_group(dp);
        if (group == 0 || dp % group != 0) {
            throw_invalid_argument(where, "'", path, "': policy ", Policy::name, " with shard groups of ", group,
                                   " does not divide dp = ", dp);
        }
        return {context.template communicator<ShardAxes<Policy>>(group, where),
                context.template communicator<ReplicaAxes<Policy>>(group, where),
                context.template communicator<DataAxes>(group, where)};
    }

    GroupGeometry geometry(std::string path) const {
        GroupGeometry g;
        g.path = std::move(path);
        g.buffer_numel = layout_.buffer_numel();
        g.shard_numel = layout_.shard_numel();
        g.shards = layout_.shards();
        g.shard_index = comms_.shards.rank();
        g.own = layout_.shard(g.shard_index);
        g.updated = Policy::optimizer == Placement::sharded ? g.own : IndexRange{0, g.buffer_numel};
        g.trainable = !frozen_.all();
        return g;
    }

    template <class T, class ValueAt>
    void write_range(std::size_t parameter, std::span<T> target, std::size_t origin, ValueAt value_at) {
        constexpr std::size_t chunk = 4096;
        const IndexRange range = intersect(layout_.range(parameter), {origin, origin + target.size()});
        std::vector<T> staged(std::min(chunk, range.size()));
        for (std::size_t at = range.begin; at < range.end; at += chunk) {
            const std::size_t count = std::min(chunk, range.end - at);
            for (std::size_t i = 0; i < count; ++i) {
                staged[i] = static_cast<T>(static_cast<Arithmetic<T>>(value_at(at + i - layout_.offset(parameter))));
            }
            Engine::Kernels::copy_in(context_.compute_stream(), std::span<const T>(staged).first(count),
                                     target.subspan(at - origin, count));
        }
    }

    Context<Engine>& context_;
    Policy policy_;
    Shapes<Group> shapes_;
    typename Group::Mask frozen_;
    Comms comms_;
    FlatLayout<Group::count> layout_;
    GroupGeometry geometry_;
    ParameterStore<Engine, Policy, Precision> parameters_;
    GradientStore<Engine, Policy, Precision> gradients_;
    StepState step_;
    std::uint64_t gradient_generation_ = 0;
    EngineTable<Engine, IndexRange> own_segments_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
