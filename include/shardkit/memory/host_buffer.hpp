// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// Owns host memory for `size` elements of type T, zeroed by the thread that makes it (so that its pages are near
/// that thread) and aligned to 128 bytes; freed at the end of its life. Move-only. Zero elements take no memory. Or
/// memory that an engine places itself, which takes it back then.
template <Element T>
class HostBuffer {
  public:
    static constexpr std::size_t alignment = 128;

    HostBuffer() noexcept = default;

    /// Allocates and zeroes `size` elements.
    /// @throws std::length_error when the bytes do not fit a std::size_t; std::bad_alloc when there is no memory
    explicit HostBuffer(std::size_t size) : size_(size) {
        if (size == 0) { return; }
        if (size > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) {
            throw std::length_error(
                detail::concat("HostBuffer: ", size, " elements of ", sizeof(T), " bytes exceed the address space"));
        }
        data_ = static_cast<T*>(::operator new (size * sizeof(T), std::align_val_t{alignment}));
        for (std::size_t i = 0; i < size; ++i) { ::new (static_cast<void*>(data_ + i)) T{}; }
    }

    /// Takes memory whose deleter gives it back.
    /// @pre `size` zeroed elements, aligned to 128 bytes
    HostBuffer(std::shared_ptr<T> placed, std::size_t size) noexcept
        : placed_(std::move(placed)), data_(placed_.get()), size_(size) {}

    HostBuffer(HostBuffer&& other) noexcept
        : placed_(std::move(other.placed_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    HostBuffer& operator=(HostBuffer&& other) noexcept {
        std::swap(placed_, other.placed_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    ~HostBuffer() {
        if (!placed_) { ::operator delete (data_, std::align_val_t{alignment}); }
    }

    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::span<T> span() const noexcept { return {data_, size_}; }

  private:
    std::shared_ptr<T> placed_;  // null where the memory is this buffer's own
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {
/// Whether the host reads and writes an engine's buffers.
template <class Engine>
inline constexpr bool host_reads =
    std::same_as<typename Engine::template Buffer<std::uint8_t>, HostBuffer<std::uint8_t>>;
}  // namespace detail

}  // namespace shardkit
