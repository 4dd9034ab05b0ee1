// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/param/attributes.hpp>
#include <shardkit/param/tensor_list.hpp>

namespace shardkit {

/// How one group is wrapped.
template <class Group, class Policy>
struct ShardedOptions {
    Policy policy{};                     ///< carries the group size of HybridShard<dynamic>
    Packing packing = Packing::aligned;  ///< exact only for memory that a replicating policy adopts
    typename Group::Mask frozen{};       ///< Group::mask<Weight>(): no norm and no update; Group::all()
    typename Group::Mask no_decay{};     ///< Group::mask<Bias>(): no weight decay

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

    constexpr void choose(std::size_t /*number*/, ParameterAttributes& /*stated*/) const noexcept {}
};

}  // namespace shardkit
