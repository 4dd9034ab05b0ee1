// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

namespace detail {
/// Memory that somebody else has placed, and how it is given back.
struct PlacedMemory {
    void* data = nullptr;
    void* owner = nullptr;
    void (*release)(void* owner) noexcept = nullptr;
};
}  // namespace detail

/// Owns host memory for `size` elements of type T, aligned to 128 bytes, and zeroed by the thread that makes it, so
/// that its pages are near that thread. It may also own memory that an engine has placed, which the engine takes back
/// at the end. Move-only. Zero elements take no memory.
template <Element T>
class HostBuffer {
  public:
    static constexpr std::size_t alignment = 128;
    /// The number of elements whose bytes still fit the address space.
    static constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T);

    HostBuffer() noexcept = default;

    /// Allocates and zeroes `size` elements.
    /// @throws std::length_error when the bytes do not fit a std::size_t; std::bad_alloc when there is no memory
    explicit HostBuffer(std::size_t size) : size_(size) {
        if (size == 0) { return; }
        if (size > most) {
            throw std::length_error(
                detail::concat("HostBuffer: ", size, " elements of ", sizeof(T), " bytes exceed the address space"));
        }
        data_ = static_cast<T*>(::operator new (size * sizeof(T), std::align_val_t{alignment}));
        std::memset(static_cast<void*>(data_), 0, size * sizeof(T));
    }

    /// Takes placed memory, which it gives back at its end.
    /// @pre `size` zeroed elements, aligned to 128 bytes
    HostBuffer(const detail::PlacedMemory& placed, std::size_t size) noexcept
        : data_(static_cast<T*>(placed.data)), size_(size), placed_(placed) {}

    /// Takes what place(bytes) places for `size` elements, or memory of its own where that is none.
    template <class Place>
    static HostBuffer placed(std::size_t size, const Place& place) {
        if (size > 0 && size <= most) {
            if (const auto memory = place(size * sizeof(T)); memory.data != nullptr) { return {memory, size}; }
        }
        return HostBuffer(size);
    }
    HostBuffer(HostBuffer&& other) noexcept : HostBuffer() { swap(other); }
    HostBuffer& operator=(HostBuffer&& other) noexcept {
        HostBuffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~HostBuffer() {
        if (placed_.release != nullptr) {
            placed_.release(placed_.owner);
        } else {
            ::operator delete (data_, std::align_val_t{alignment});
        }
    }

    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::span<T> span() const noexcept { return {data(), size()}; }

  private:
    void swap(HostBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(placed_, other.placed_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    detail::PlacedMemory placed_;  // without a release if the memory is the buffer's own
};

}  // namespace shardkit
