// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

/// One group's parameters and the sizes of its buffers on one rank, in elements; free of types, so that what works on
/// it is compiled once for all groups.
struct GroupGeometry {
    std::string path;
    std::span<const std::string_view> names;  ///< one for each parameter, as are the next three
    std::span<const TensorShape> shapes;
    std::span<const IndexRange> ranges;  ///< within the full buffer
    std::vector<bool> frozen;
    std::size_t buffer_numel = 0;  ///< full buffer, padding included
    std::size_t shard_numel = 0;   ///< one shard
    std::size_t shards = 1;
    std::size_t shard_index = 0;
    IndexRange own;         ///< this rank's shard within the full buffer
    IndexRange updated;     ///< what this rank's optimizer updates: `own`, or everything where it is replicated
    bool trainable = true;  ///< false when every parameter is frozen: no gradient, master or optimizer state
};

}  // namespace shardkit
