// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/byte_count.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Owns memory of the current device for `size` elements of type T by cudaMalloc, zeroed in the order of `stream`;
/// other streams wait for that one before they use it. Move-only. Zero elements take no memory.
/// Cost:    cudaMalloc and cudaFree wait for the device; not for use inside a step.
template <class T>
requires std::is_trivially_copyable_v<T>
class DeviceBuffer {
  public:
    DeviceBuffer() noexcept = default;

    /// Takes and zeroes memory for `size` elements.
    /// @throws std::length_error when the bytes exceed the address space; Error
    DeviceBuffer(std::size_t size, StreamRef stream, SourceLocation where = SourceLocation::current())
        : DeviceBuffer(size, where) {
        if (size == 0) { return; }
        check(cudaMemsetAsync(data_, 0, size * sizeof(T), stream.native()), "cudaMemsetAsync", where);
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    ~DeviceBuffer() {
        if (data_ != nullptr) { static_cast<void>(cudaFree(data_)); }
    }

    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::span<T> span() const noexcept { return {data_, size_}; }

  private:
    DeviceBuffer(std::size_t size, SourceLocation where) {
        const std::size_t bytes = byte_count("DeviceBuffer", size, sizeof(T), where);
        if (bytes == 0) { return; }
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc", where);
        data_ = static_cast<T*>(memory);
        size_ = size;
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace shardkit::gpu::detail
