// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/param/attributes.hpp>
#include <shardkit/param/tensor_list.hpp>

namespace shardkit {

/// Whether a group keeps the master weights of its Precision. Without them the optimizer updates the gathered
/// elements themselves, and they lose in each step what their type does not hold.
enum class MasterWeights : std::uint8_t { kept, none };

/// Rounds updated parameters of 16 bits, which have no master, up or down at random, so that their mean is what the
/// optimizer computed. What an element becomes depends on the seed, the group's path and step, and the element's
/// number in the whole group alone: the same bits on every mesh and under every policy.
struct StochasticRounding {
    std::uint64_t seed = 0;
};

/// How one group is wrapped.
template <class Group, class Policy>
struct ShardedOptions {
    Policy policy{};                     ///< carries the group size of HybridShard<dynamic>
    Packing packing = Packing::aligned;  ///< exact only for memory that a replicating policy adopts
    typename Group::Mask frozen{};       ///< Group::mask<Weight>(): no norm and no update; Group::all()
    typename Group::Mask no_decay{};     ///< Group::mask<Bias>(): no weight decay
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};

    /// Adds what is chosen here to what the type of parameter `number` states.
    constexpr void choose(std::size_t number, ParameterAttributes& stated) const {
        stated.frozen = stated.frozen || frozen[number];
        stated.decay = stated.decay && !no_decay[number];
    }
};

/// A list says of each tensor what the masks say of types.
template <class E, class Policy>
struct ShardedOptions<TensorList<E>, Policy> {
    Policy policy{};
    Packing packing = Packing::aligned;
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};

    constexpr void choose(std::size_t /*number*/, ParameterAttributes& /*stated*/) const noexcept {}
};

}  // namespace shardkit
