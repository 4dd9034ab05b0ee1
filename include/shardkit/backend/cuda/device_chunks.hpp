// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/backend/cuda/chunk_source.hpp>
#include <shardkit/backend/cuda/device_guard.hpp>
#include <shardkit/backend/cuda/out_of_memory.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Chunks of one device by cudaMalloc, whichever device is selected when they are taken.
class DeviceChunks final : public ChunkSource {
  public:
    explicit DeviceChunks(int device) noexcept : device_(device) {}

    /// @throws OutOfMemory; Error
    void* allocate(std::size_t bytes, SourceLocation where) override {
        const DeviceGuard guard(device_, where);
        void* chunk = nullptr;
        const cudaError_t code = cudaMalloc(&chunk, bytes);
        if (code == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            throw OutOfMemory("cudaMalloc", bytes, where);
        }
        check(code, "cudaMalloc", where);
        return chunk;
    }
    void free(void* chunk) noexcept override { static_cast<void>(cudaFree(chunk)); }

  private:
    int device_;
};

}  // namespace shardkit::gpu
