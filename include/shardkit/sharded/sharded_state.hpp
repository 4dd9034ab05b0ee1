// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/place_group.hpp>

namespace shardkit::detail {

/// Returns the names of a group's types, aliases included; empty for a TensorList.
template <class Group>
constexpr std::span<const ParameterName> names_of_types() noexcept {
    if constexpr (requires { Group::all_names; }) {
        return Group::all_names;
    } else {
        return {};
    }
}
/// Returns the extents that a group's types fix; empty for a TensorList.
template <class Group>
constexpr std::span<const std::span<const std::size_t>> extents_of_types() noexcept {
    if constexpr (requires { typename Group::Stored; }) {
        return StoredTraits<typename Group::Stored>::extents;
    } else {
        return {};
    }
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_BUILD {

/// The state of a Sharded: a GroupState with the types of its group and policy. Its address is stable, so that
/// windows and handles survive a move of the Sharded.
template <class GroupType, class PolicyType, class EngineType, class PrecisionType>
class ShardedState final : public GroupState<EngineType, PrecisionType> {
    using Base = GroupState<EngineType, PrecisionType>;

  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using typename Base::Engine;
    using typename Base::Gather;
    using typename Base::Gradient;
    using typename Base::Precision;
    using Options = ShardedOptions<Group, Policy>;

    /// @throws what GroupState's constructor and the check of a TensorList throw
    ShardedState(Context<Engine>& context, std::string_view path, const TensorsOf<Group>& tensors,
                 const Options& options, std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients,
                 SourceLocation where)
        : Base(context,
               {path, chosen_parameters<Group, Policy>(path, tensors, options, where), extents_of_types<Group>(),
                names_of_types<Group>(), rules::policy_values(options.policy, dp_extent(context), where),
                options.packing, options.master, options.stochastic_rounding, options.gradient_release,
                options.offload},
               adopted_parameters, adopted_gradients, where),
          policy_(options.policy) {}

    const Policy& policy() const noexcept { return policy_; }

  private:
    Policy policy_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
