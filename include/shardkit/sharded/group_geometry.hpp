// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/layout/index_range.hpp>

namespace shardkit {

/// Sizes of one group's buffers on one rank, in elements; free of types so that the stores need few templates.
struct GroupGeometry {
    std::string path;
    std::size_t buffer_numel = 0;  ///< full buffer, padding included
    std::size_t shard_numel = 0;   ///< one shard
    std::size_t shards = 1;
    std::size_t shard_index = 0;
    IndexRange own;         ///< this rank's shard within the full buffer
    IndexRange updated;     ///< what this rank's optimizer updates: `own`, or everything where it is replicated
    bool trainable = true;  ///< false when every parameter is frozen: no gradient, master or optimizer state
};

}  // namespace shardkit
