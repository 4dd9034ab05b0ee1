// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/param/tp_placement.hpp>
#include <shardkit/policy/placement.hpp>
#include <shardkit/policy/policy_traits.hpp>

namespace shardkit {

/// One group's parameters and the sizes of its buffers on one rank, in elements; free of types, so that what works on
/// it is compiled once for all groups.
struct GroupGeometry {
    std::string path;
    PolicyTraits policy;
    std::span<const std::string_view> names;  ///< one for each parameter, as are the next five
    std::span<const TensorShape> shapes;      ///< of the whole tensors
    std::span<const TpPlacement> tp_placements;
    std::span<const TensorPart> parts;   ///< what this rank's place in tp gives it
    std::span<const IndexRange> ranges;  ///< within the full buffer
    std::vector<bool> frozen;
    std::size_t buffer_numel = 0;  ///< full buffer, padding included
    std::size_t shard_numel = 0;   ///< one shard
    std::size_t shards = 1;
    std::size_t shard_index = 0;
    std::size_t replicas = 1;       ///< data ranks that hold the same shard
    std::size_t replica_index = 0;  ///< of this one among them
    std::size_t tp_size = 1;
    std::size_t tp_index = 0;
    IndexRange own;         ///< this rank's shard within the full buffer
    IndexRange tp_sum;      ///< whose gradients are summed over tp; empty where tp is 1
    IndexRange updated;     ///< what this rank's optimizer updates: `own`, or everything where it is replicated
    bool trainable = true;  ///< false when every parameter is frozen: no gradient, master or optimizer state

    bool split_over_tp(std::size_t parameter) const noexcept {
        return tp_placements[parameter].kind == TpPlacement::Kind::split;
    }
    /// 0 on exactly one of the ranks that hold the same elements of a parameter, in buffers placed as `placement`.
    std::size_t replica(std::size_t parameter, Placement placement) const noexcept {
        const std::size_t of_shard = replica_index + replicas * (split_over_tp(parameter) ? 0 : tp_index);
        return placement == Placement::sharded ? of_shard : shard_index + shards * of_shard;
    }
};

}  // namespace shardkit
