// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/check.hpp>

namespace shardkit::nccl::detail {

/// Chunks of one device by ncclMemAlloc: memory that NCCL can register. For NCCL 2.19 and later.
class NcclChunks final : public gpu::ChunkSource {
  public:
    explicit NcclChunks(int device) noexcept : device_(device) {}

    /// @throws CommError
    void* allocate([[maybe_unused]] std::size_t bytes, SourceLocation where) override {
        const gpu::DeviceGuard guard(device_, where);
        void* chunk = nullptr;
#if NCCL_VERSION_CODE >= 21901
        check(ncclMemAlloc(&chunk, bytes), "ncclMemAlloc", "registered memory", where);
#endif
        return chunk;
    }
    void free([[maybe_unused]] void* chunk) noexcept override {
#if NCCL_VERSION_CODE >= 21901
        static_cast<void>(ncclMemFree(chunk));
#endif
    }

  private:
    int device_;
};

}  // namespace shardkit::nccl::detail
