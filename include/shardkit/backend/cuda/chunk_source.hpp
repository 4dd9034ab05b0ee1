// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Where an Arena takes its chunks from: DeviceChunks (cudaMalloc), or a communication library's allocator.
class ChunkSource {
  public:
    ChunkSource() = default;
    ChunkSource(const ChunkSource&) = delete;
    ChunkSource& operator=(const ChunkSource&) = delete;
    virtual ~ChunkSource() = default;

    /// Memory for `bytes` > 0, aligned to at least 256 bytes.
    /// Throws what its allocator's failure is told by.
    virtual void* allocate(std::size_t bytes, SourceLocation where) = 0;
    /// Gives back what `allocate` returned.
    virtual void free(void* chunk) noexcept = 0;
};

}  // namespace shardkit::gpu
