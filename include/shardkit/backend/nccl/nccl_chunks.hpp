// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cuda/chunk_source.hpp>
#include <shardkit/backend/cuda/device_guard.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/check.hpp>
#include <shardkit/backend/nccl/version.hpp>

namespace shardkit::nccl {

/// The first NCCL with ncclMemAlloc and ncclCommRegister.
inline constexpr int registration_version = 21901;

/// Chunks of one device by ncclMemAlloc: memory that NCCL can register.
class NcclChunks final : public cuda::ChunkSource {
  public:
    /// @throws CommError when NCCL, the library or its header, is too old
    explicit NcclChunks(int device, SourceLocation where) : device_(device) {
        if constexpr (NCCL_VERSION_CODE < registration_version) {
            throw CommError("nccl", "registered_memory",
                            shardkit::detail::concat("built with NCCL ", version_text(NCCL_VERSION_CODE),
                                                     ", expected ", version_text(registration_version), " or later"),
                            where);
        }
        require_version(registration_version, "registered_memory", where);
    }

    /// @throws CommError
    void* allocate(std::size_t bytes, SourceLocation where) override {
        const cuda::DeviceGuard guard(device_, where);
        void* chunk = nullptr;
#if NCCL_VERSION_CODE >= 21901
        check(ncclMemAlloc(&chunk, bytes), "ncclMemAlloc", "registered_memory", where);
#else
        static_cast<void>(bytes);
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

}  // namespace shardkit::nccl
