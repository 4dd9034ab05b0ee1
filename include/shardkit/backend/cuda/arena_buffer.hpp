// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/byte_count.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu::detail {

/// Owns zeroed device memory for `size` elements of type T out of an Arena: the Buffer of the engines for CUDA
/// devices. It does not matter which device is selected. Move-only. Zero elements take no memory.
/// Order:   the host waits for the zeroing, so that every stream may use the memory.
/// @pre     the arena outlives it; work that uses it has ended before its end
template <Element T>
class ArenaBuffer {
  public:
    ArenaBuffer() noexcept = default;

    /// Allocates and zeroes memory for `size` elements.
    /// @throws std::length_error when the bytes exceed the address space; what the arena's source throws; Error, or
    ///         what the timeline's Watch throws
    ArenaBuffer(Arena& arena, std::size_t size, const TimelineRef& stream,
                SourceLocation where = SourceLocation::current())
        : ArenaBuffer(arena, size, where) {
        if (size == 0) { return; }
        const DeviceGuard guard(stream.device(), where);
        check(cudaMemsetAsync(data(), 0, size * sizeof(T), stream.native()), "cudaMemsetAsync", where);
        stream.synchronize(where);
    }

    T* data() const noexcept { return data_.get(); }
    std::size_t size() const noexcept { return data_ == nullptr ? 0 : size_; }
    std::span<T> span() const noexcept { return {data(), size()}; }

  private:
    ArenaBuffer(Arena& arena, std::size_t size, SourceLocation where)
        : data_(static_cast<T*>(arena.allocate(byte_count("ArenaBuffer", size, sizeof(T), where), where)),
                Free{&arena}),
          size_(size) {}

    struct Free {
        Arena* arena;
        void operator()(T* data) const noexcept { arena->free(data); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0;  // not valid after a move from it
};

}  // namespace shardkit::gpu::detail
