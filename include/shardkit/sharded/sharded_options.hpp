// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/layout/flat_layout.hpp>

namespace shardkit {

/// How one group is wrapped.
template <class Group, class Policy>
struct ShardedOptions {
    Policy policy{};                     ///< carries the group size of HybridShard<dynamic>
    Packing packing = Packing::aligned;  ///< exact only for memory that a replicating policy adopts
    typename Group::Mask frozen{};       ///< Group::mask<Weight>(): no gradient, norm or update; Group::all()
};

}  // namespace shardkit
