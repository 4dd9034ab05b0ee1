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
               {path, chosen_parameters<Group, Policy>(path, tensors, options, where), Group::extents,
                Group::all_names, rules::policy_values(options.policy, dp_extent(context), where), options.packing,
                options.master, options.stochastic_rounding, options.gradient_release, options.offload},
               adopted_parameters, adopted_gradients, where),
          policy_(options.policy) {}

    const Policy& policy() const noexcept { return policy_; }

  private:
    Policy policy_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
