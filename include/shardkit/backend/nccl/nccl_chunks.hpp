// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/check.hpp>

namespace shardkit::nccl::detail {

/// Takes chunks of one device by ncclMemAlloc: memory that NCCL can register. For NCCL 2.19 and later.
class NcclChunks final : public gpu::detail::ChunkSource {
  public:
    explicit NcclChunks(int device) noexcept : device_(device) {}

    /// Allocates a chunk by ncclMemAlloc.
    /// @throws gpu::OutOfMemory; CommError
    void* allocate([[maybe_unused]] std::size_t bytes, SourceLocation where) override {
        const gpu::detail::DeviceGuard guard(device_, where);
        void* chunk = nullptr;
#if NCCL_VERSION_CODE >= 21901
        const ncclResult_t code = ncclMemAlloc(&chunk, bytes);
        // NCCL has one code for all failures of CUDA, and CUDA's words in its text.
        if (code == ncclUnhandledCudaError &&
            std::string_view(ncclGetLastError(nullptr)).find("out of memory") != std::string_view::npos) {
            static_cast<void>(cudaGetLastError());
            throw gpu::OutOfMemory("ncclMemAlloc", bytes, where);
        }
        check(code, "ncclMemAlloc", "registered memory", where);
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
