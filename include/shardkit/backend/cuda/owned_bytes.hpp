// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Owns zeroed bytes of a device, or pinned bytes of the host. Move-only; no bytes take no memory and no call.
/// @pre     work that uses them has ended before their end
class OwnedBytes {
  public:
    using Free = void (*)(void* bytes, void* owner) noexcept;

    OwnedBytes() noexcept = default;
    /// Takes bytes, which free(bytes, owner) frees.
    OwnedBytes(void* bytes, std::size_t size, Free free, void* owner = nullptr) noexcept
        : bytes_(static_cast<std::byte*>(bytes), {free, owner}), size_(size) {}

    std::byte* data() const noexcept { return bytes_.get(); }
    std::size_t size() const noexcept { return data() == nullptr ? 0 : size_; }
    std::span<std::byte> span() const noexcept { return {data(), size()}; }

  private:
    struct Freed {
        Free free;
        void* owner;
        void operator()(std::byte* bytes) const noexcept { free(bytes, owner); }
    };
    std::unique_ptr<std::byte, Freed> bytes_;
    std::size_t size_ = 0;  // not valid after a move from it
};

/// Allocates bytes of the current device with cudaMalloc, zeroed in the order of `stream`; other streams must wait
/// for that stream before they use them.
/// Cost:    cudaMalloc and cudaFree wait for the device; do not use inside a step.
/// @throws  Error
inline OwnedBytes device_bytes(std::size_t size, StreamRef stream, SourceLocation where = SourceLocation::current()) {
    if (size == 0) { return {}; }
    void* memory = nullptr;
    check(cudaMalloc(&memory, size), "cudaMalloc", where);
    OwnedBytes made(memory, size, [](void* bytes, void*) noexcept { static_cast<void>(cudaFree(bytes)); });
    check(cudaMemsetAsync(memory, 0, size, stream.native()), "cudaMemsetAsync", where);
    return made;
}

/// Allocates bytes of the host with cudaMallocHost, which devices copy from and to without staging.
/// Cost:    locks their pages, and cudaMallocHost and cudaFreeHost may wait for the device; do not use inside a step.
/// @throws  OutOfMemory; Error
inline OwnedBytes pinned_bytes(std::size_t size, SourceLocation where = SourceLocation::current()) {
    if (size == 0) { return {}; }
    void* memory = nullptr;
    const cudaError_t code = cudaMallocHost(&memory, size);
    if (code == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        throw OutOfMemory("cudaMallocHost", size, where);
    }
    check(code, "cudaMallocHost", where);
    std::memset(memory, 0, size);
    return {memory, size, [](void* bytes, void*) noexcept { static_cast<void>(cudaFreeHost(bytes)); }};
}

/// Allocates bytes of a stream's device out of an arena, which outlives them; which device is selected does not
/// matter.
/// Order:   the host waits for the zeroing, so that every stream may use them.
/// @throws  what the arena throws; Error, or what the stream's Watch throws
template <class Stream>
OwnedBytes arena_bytes(Arena& arena, std::size_t size, const Stream& stream,
                       SourceLocation where = SourceLocation::current()) {
    if (size == 0) { return {}; }
    OwnedBytes made(
        arena.allocate(size, where), size,
        [](void* bytes, void* owner) noexcept { static_cast<Arena*>(owner)->free(bytes); }, &arena);
    const DeviceGuard guard(stream.device(), where);
    check(cudaMemsetAsync(made.data(), 0, size, stream.native()), "cudaMemsetAsync", where);
    stream.synchronize(where);
    return made;
}

}  // namespace shardkit::gpu::detail
