// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/byte_count.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Owns memory of the current device for `size` elements of type T from cudaMalloc, zeroed in the order of `stream`;
/// other streams must wait for that stream before they use it. Move-only. Zero elements take no memory.
/// Cost:    cudaMalloc and cudaFree wait for the device; do not use inside a step.
template <class T>
requires std::is_trivially_copyable_v<T>
class DeviceBuffer {
  public:
    DeviceBuffer() noexcept = default;

    /// Allocates and zeroes memory for `size` elements.
    /// @throws std::length_error when the bytes exceed the address space; Error
    DeviceBuffer(std::size_t size, StreamRef stream, SourceLocation where = SourceLocation::current())
        : DeviceBuffer(size, where) {
        if (size == 0) { return; }
        check(cudaMemsetAsync(data(), 0, size * sizeof(T), stream.native()), "cudaMemsetAsync", where);
    }

    T* data() const noexcept { return data_.get(); }
    std::size_t size() const noexcept { return data_ == nullptr ? 0 : size_; }
    std::span<T> span() const noexcept { return {data(), size()}; }

  private:
    DeviceBuffer(std::size_t size, SourceLocation where) {
        const std::size_t bytes = byte_count("DeviceBuffer", size, sizeof(T), where);
        if (bytes == 0) { return; }
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc", where);
        data_.reset(static_cast<T*>(memory));
        size_ = size;
    }

    struct Free {
        void operator()(T* data) const noexcept { static_cast<void>(cudaFree(data)); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0;  // not valid after a move from it
};

}  // namespace shardkit::gpu::detail
