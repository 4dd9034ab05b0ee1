// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl::detail {

/// Allocates chunks on one device with ncclMemAlloc, which NCCL can register. For NCCL 2.19 and later.
class NcclChunks final : public gpu::detail::ChunkSource {
  public:
    explicit NcclChunks(int device) noexcept : device_(device) {}

    /// Allocates a chunk. @throws gpu::OutOfMemory; CommError
    void* allocate([[maybe_unused]] std::size_t bytes, SourceLocation where) override {
        const gpu::detail::DeviceGuard guard(device_, where);
        void* chunk = nullptr;
#if NCCL_VERSION_CODE >= 21901
        const ncclResult_t code = ncclMemAlloc(&chunk, bytes);
        // NCCL has one code for all failures of CUDA; its text contains CUDA's.
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

/// The registration of one chunk with one communicator. NCCL itself forgets the registrations of a communicator that
/// it aborts. It may write the handles some time after the call, so the object's address must not change.
class Registered {
  public:
    static constexpr std::string_view call(Registration registration) noexcept {
        return registration == Registration::windows ? "ncclCommWindowRegister" : "ncclCommRegister";
    }
    ncclResult_t make([[maybe_unused]] ncclComm_t comm, [[maybe_unused]] const gpu::detail::Arena::Chunk& chunk,
                      [[maybe_unused]] Registration registration) {
#if NCCL_VERSION_CODE >= 22703
        if (registration == Registration::windows) {
            return ncclCommWindowRegister(comm, chunk.data, chunk.bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
        }
#endif
#if NCCL_VERSION_CODE >= 21901
        return ncclCommRegister(comm, chunk.data, chunk.bytes, &handle_);
#else
        return ncclInvalidUsage;
#endif
    }
    /// Deregisters the chunk.
    /// @throws CommError
    void undo([[maybe_unused]] ncclComm_t comm, [[maybe_unused]] SourceLocation where) {
#if NCCL_VERSION_CODE >= 22703
        if (window_ != nullptr) {
            check(ncclCommWindowDeregister(comm, window_), "ncclCommWindowDeregister", "finish", where, comm);
        }
#endif
#if NCCL_VERSION_CODE >= 21901
        if (handle_ != nullptr) {
            check(ncclCommDeregister(comm, handle_), "ncclCommDeregister", "finish", where, comm);
        }
#endif
    }

  private:
    void* handle_ = nullptr;
#if NCCL_VERSION_CODE >= 22703
    ncclWindow_t window_ = nullptr;
#endif
};

}  // namespace shardkit::nccl::detail
