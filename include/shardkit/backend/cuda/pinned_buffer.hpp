// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/byte_count.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Owns zeroed host memory (cudaMallocHost) for `size` elements of type T, which devices copy from and to without
/// staging. Move-only. Zero elements take no memory.
/// Cost:    locks its pages, and cudaMallocHost and cudaFreeHost may wait for the device; do not use inside a step.
template <class T>
requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>
class PinnedBuffer {
  public:
    PinnedBuffer() noexcept = default;

    /// Allocates and zeroes memory for `size` elements.
    /// @throws std::length_error when the bytes exceed the address space; OutOfMemory; Error
    explicit PinnedBuffer(std::size_t size, SourceLocation where = SourceLocation::current()) {
        const std::size_t bytes = byte_count("PinnedBuffer", size, sizeof(T), where);
        if (bytes == 0) { return; }
        void* memory = nullptr;
        const cudaError_t code = cudaMallocHost(&memory, bytes);
        if (code == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            throw OutOfMemory("cudaMallocHost", bytes, where);
        }
        check(code, "cudaMallocHost", where);
        data_.reset(static_cast<T*>(memory));
        size_ = size;
        std::uninitialized_value_construct_n(data(), size_);
    }

    T* data() const noexcept { return data_.get(); }
    std::size_t size() const noexcept { return data_ == nullptr ? 0 : size_; }
    std::span<T> span() const noexcept { return {data(), size()}; }

  private:
    struct Free {
        void operator()(T* data) const noexcept { static_cast<void>(cudaFreeHost(data)); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0;  // not valid after a move from it
};

}  // namespace shardkit::gpu::detail
