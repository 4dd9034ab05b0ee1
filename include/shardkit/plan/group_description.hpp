// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/policy/policy_traits.hpp>
#include <shardkit/sharded/placed_parameters.hpp>
#include <shardkit/sharded/precision.hpp>

namespace shardkit {

/// Bytes of one element of each of a group's buffers.
struct ElementSizes {
    std::size_t gather = 4;
    std::size_t gradient = 4;
    std::size_t reduction = 4;
    std::size_t master = 4;
    std::size_t state = 4;  ///< of one optimizer state
    bool has_master = false;
    bool reduces_in_place = true;
};

/// The element sizes of a Precision.
template <class Precision>
constexpr ElementSizes element_sizes() noexcept {
    return {sizeof(typename Precision::Gather),
            sizeof(typename Precision::Gradient),
            sizeof(typename Precision::Reduction),
            sizeof(typename Precision::Master),
            sizeof(Arithmetic<typename Precision::Master>),
            Precision::has_master,
            Precision::reduces_in_place};
}

/// What the planner needs to know of one group; made from types and shapes without any rank or memory.
struct GroupDescription {
    std::string_view path;         ///< must outlive the description
    std::size_t numel = 0;         ///< distinct elements of all parameters, over all of tp
    std::size_t buffer_numel = 0;  ///< full flat buffer, padding included
    std::size_t shard_numel = 0;
    std::size_t shards = 1;
    std::size_t tp = 1;
    IndexRange tp_sum;  ///< of the full buffer, what is summed over tp
    PolicyTraits policy;
    ElementSizes sizes;
    bool trainable = true;
    std::optional<std::size_t> windows_per_microbatch{};  ///< where it is not what PlanOptions say of all groups
};

namespace detail {
template <class Group>
constexpr void describe_placed(const PlacedParameters<Group>& placed, GroupDescription& group) {
    for (const std::size_t numel : placed.shapes.numels()) { group.numel += numel; }
    group.buffer_numel = placed.layout.buffer_numel();
    group.shard_numel = placed.layout.shard_numel();
    group.shards = placed.layout.shards();
    group.tp = placed.tp;
    group.tp_sum = placed.tp_sum();
}
}  // namespace detail

/// The description of a group as Sharded<ParamOrGroup, Policy, ..., Precision> on a mesh would lay it out.
/// Cost:    arithmetic only; works in constant expressions, and for meshes of any size on any machine.
/// @throws  std::invalid_argument when the policy's shard group does not divide dp, or tp an extent that it splits
template <class ParamOrGroup, ShardPolicy Policy,
          class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
constexpr GroupDescription describe_group(std::string_view path, const Shapes<GroupOf<ParamOrGroup>>& shapes,
                                          const AxisGrid& mesh, const Policy& policy = {}) {
    const std::size_t dp = mesh.extent(Dp::name);
    const std::size_t cp = mesh.extent(Cp::name);
    GroupDescription group;
    group.path = path;
    group.policy = policy_traits(policy, dp, cp);
    if (group.policy.shard_group == 0 || dp % group.policy.shard_group != 0) {
        throw std::invalid_argument(detail::concat("'", path, "': policy ", policy.name, " with shard groups of ",
                                                   group.policy.shard_group, " does not divide dp = ", dp));
    }
    const PlacedParameters<GroupOf<ParamOrGroup>> placed(path, shapes, mesh, 0,
                                                         group.policy.shard_group * group.policy.cp_shards,
                                                         alignment_for(Precision::narrowest));
    detail::describe_placed(placed, group);
    group.sizes = element_sizes<Precision>();
    return group;
}

/// The description of a group that exists.
template <class Layer>
GroupDescription describe_group(const Layer& layer) {
    GroupDescription group;
    const AxisGrid& mesh = layer.context().grid();
    group.path = layer.path();
    group.policy = policy_traits(layer.policy(), mesh.extent(Dp::name), mesh.extent(Cp::name));
    detail::describe_placed(detail::Access::state(layer).placed(), group);
    group.sizes = element_sizes<typename Layer::Precision>();
    group.trainable = layer.trainable();
    return group;
}

}  // namespace shardkit
