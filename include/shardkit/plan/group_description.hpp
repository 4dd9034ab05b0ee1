// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <shardkit/comm/cost.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/split_mesh.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/precision.hpp>

namespace shardkit {

/// What a plan assumes of the trainer.
struct PlanOptions {
    std::size_t microbatches = 1;            ///< per step
    std::size_t in_flight = 2;               ///< RankOptions::in_flight: prefetch depth + 1
    std::size_t optimizer_states = 2;        ///< AdamW 2, Lion and SGD with momentum 1, plain SGD 0
    std::size_t windows_per_microbatch = 2;  ///< one in forward, one in backward
    std::size_t norms_per_step = 1;          ///< global_norm calls
    std::size_t ranks_per_host = 0;          ///< ranks 0 .. k - 1 on the first host, and so on; 0: all on one host
    EngineTraits engine{};                   ///< Engine::traits; a plan of groups that exist takes their engine's
};

/// What the planner needs to know of one group; made from types and shapes without any rank or memory.
struct GroupDescription {
    std::string_view path;         ///< must outlive the description
    std::size_t numel = 0;         ///< distinct elements of all parameters, over all of tp
    std::uint64_t alike = 0;       ///< of groups that take turns in slots; see detail::likeness
    std::size_t buffer_numel = 0;  ///< full flat buffer, padding included
    std::size_t shard_numel = 0;
    std::size_t shards = 1;
    std::size_t replicas = 1;  ///< data ranks that hold the same shard
    std::size_t tp = 1;
    IndexRange tp_sum;  ///< of the full buffer, what is summed over tp
    PolicyValues policy;
    detail::ElementSizes sizes;
    bool trainable = true;
    std::optional<std::size_t> windows_per_microbatch{};  ///< where it is not what PlanOptions say of all groups

    /// The group's buffers and collectives: the rows that its stores execute.
    constexpr detail::PlacementTable table() const { return detail::placement_table(policy, sizes, trainable); }
    /// Elements of one rank.
    constexpr std::size_t numel_of(detail::Extent extent) const noexcept {
        return extent == detail::Extent::shard ? shard_numel : buffer_numel;
    }
};

namespace detail {
constexpr void describe_placed(std::span<const PlacedParameter> parameters, std::size_t tp, GroupDescription& group) {
    for (const PlacedParameter& p : parameters) { group.numel += p.shape.numel(); }
    group.tp = tp;
    group.tp_sum = tp_sum(parameters, tp);
    group.trainable = trainable(parameters);
}
}  // namespace detail

/// The description of a group as Sharded<ParamOrGroup, Policy, ..., Precision> on a mesh would lay it out.
/// Cost:    arithmetic only; works in constant expressions, and for meshes of any size on any machine.
/// @throws  std::invalid_argument when the policy's shard group does not divide dp, or tp an extent that it splits
template <class ParamOrGroup, ShardPolicy Policy,
          class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
constexpr GroupDescription describe_group(std::string_view path, const TensorsOf<ParamOrGroup>& tensors,
                                          const AxisGrid& mesh, const Policy& policy = {},
                                          MasterWeights master = MasterWeights::kept,
                                          SourceLocation where = SourceLocation::current()) {
    GroupDescription group;
    group.path = path;
    group.policy = policy_values(policy, mesh.extent(Dp::name), where);
    const AxisGrid split = detail::split_mesh(mesh, group.policy, path, where);
    group.shards = detail::ranks_over(detail::Over::shards, group.policy, split);
    group.replicas = detail::ranks_over(detail::Over::replicas, group.policy, split);
    auto parameters = detail::checked_parameters(path, tensors, where);
    const std::size_t tp = mesh.extent(Tp::name);
    const FlatLayout layout =
        detail::place_parameters(path, parameters, {tp, 0, group.shards, alignment_for(Precision::narrowest)}, where);
    group.buffer_numel = layout.buffer_numel();
    group.shard_numel = layout.shard_numel();
    detail::describe_placed(parameters, tp, group);
    group.sizes = detail::element_sizes<Precision>(master);
    group.alike = detail::likeness(parameters, Packing::aligned, group.policy, group.sizes);
    return group;
}

namespace detail {
/// The description of a group that exists.
inline GroupDescription describe_group(const GroupGeometry& geometry) {
    GroupDescription group;
    group.path = geometry.path;
    group.policy = geometry.policy;
    group.alike = geometry.alike;
    group.buffer_numel = geometry.buffer_numel;
    group.shard_numel = geometry.shard_numel;
    group.shards = geometry.shards;
    group.replicas = geometry.replicas;
    detail::describe_placed(geometry.parameters, geometry.tp_size, group);
    group.sizes = geometry.sizes;
    return group;
}

}  // namespace detail

/// The description of a group that exists.
template <class Layer>
GroupDescription describe_group(const Layer& layer) {
    return detail::describe_group(detail::Access::state(layer).geometry());
}

}  // namespace shardkit
