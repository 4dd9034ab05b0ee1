// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/param/attributes.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/offload.hpp>

namespace shardkit {

/// Whether a group keeps the master weights of its Precision.
enum class MasterWeights : std::uint8_t {
    kept,
    none,  ///< the optimizer updates the gathered elements themselves; a step loses what their type cannot represent
    split  ///< fp32 masters of bf16 parameters as 16 bits beside each parameter: 2 bytes less, and the same updates
};

/// Rounds updated 16-bit parameters without master weights up or down at random, so that their mean is what the
/// optimizer computed. The result depends only on the seed, the group's path and step, and the element's number in
/// the whole group: the bits are the same on every mesh and under every policy.
struct StochasticRounding {
    std::uint64_t seed = 0;
};

/// How long a group's gradients exist. With at_update its buffers of gradients are leased, from the first microbatch
/// to the group's update, and like groups take turns in them: gradient release. Such a group is trained by
/// Optimizer::step_in_backward alone, as a norm needs the gradients of all groups at once.
enum class GradientRelease : std::uint8_t { never, at_update };

/// The options of one group.
template <class Group, class Policy>
struct ShardedOptions {
    Policy policy{};                     ///< carries the group size of HybridShard<dynamic>
    Packing packing = Packing::aligned;  ///< exact only for adopted memory under a replicating policy
    typename Group::Mask frozen{};       ///< Group::mask<Weight>(), Group::all(): no norm, no update
    typename Group::Mask no_decay{};     ///< Group::mask<Bias>(): no weight decay
    typename Group::Mask overwritten{};  ///< Group::mask<Weight>(): gradients as of an OverwrittenGradient
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};
    GradientRelease gradient_release = GradientRelease::never;
    Offload offload = Offload::none;

    /// Combines the options with what the type of parameter `number` states.
    constexpr void choose(std::size_t number, ParameterAttributes& stated) const {
        stated.frozen = stated.frozen || frozen[number];
        stated.decay = stated.decay && !no_decay[number];
        stated.overwritten = stated.overwritten || overwritten[number];
    }
};

/// The options of a TensorList, which states the masks for each tensor itself.
template <class E, class Policy>
struct ShardedOptions<TensorList<E>, Policy> {
    Policy policy{};
    Packing packing = Packing::aligned;
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};
    GradientRelease gradient_release = GradientRelease::never;
    Offload offload = Offload::none;

    constexpr void choose(std::size_t /*number*/, ParameterAttributes& /*stated*/) const noexcept {}
};

}  // namespace shardkit
