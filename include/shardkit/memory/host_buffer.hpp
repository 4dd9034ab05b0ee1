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
#include <string_view>
#include <utility>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// Reports that there is no memory for a buffer of a group. The text names the group's path, the bytes and the
/// buffer.
class MemoryError : public std::bad_alloc {
  public:
    MemoryError(std::string_view path, std::size_t bytes, std::string_view buffer)
        // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept for its text
        : text_(detail::concat("'", path, "': no memory for ", bytes, " bytes of ", buffer)) {}

    const char* what() const noexcept override { return text_.what(); }

  private:
    std::runtime_error text_;  // can be copied without throwing
};

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
        for (std::size_t i = 0; i < size; ++i) { ::new (static_cast<void*>(data() + i)) T{}; }
    }

    /// Takes memory that the deleter of `placed` returns.
    /// @pre `size` zeroed elements, aligned to 128 bytes
    HostBuffer(std::shared_ptr<T> placed, std::size_t size) noexcept
        : data_(placed.get()), size_(size), placed_(std::move(placed)) {}

    HostBuffer(HostBuffer&& other) noexcept : HostBuffer() { swap(other); }
    HostBuffer& operator=(HostBuffer&& other) noexcept {
        HostBuffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~HostBuffer() {
        if (!placed_) { ::operator delete (data_, std::align_val_t{alignment}); }
    }

    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::span<T> span() const noexcept { return {data(), size()}; }

  private:
    void swap(HostBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        placed_.swap(other.placed_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::shared_ptr<void> placed_;  // null if the memory is the buffer's own
};

namespace detail {
/// Whether the host may be able to read and write an engine's buffers.
template <class Engine>
inline constexpr bool may_host_read =
    std::same_as<typename Engine::template Buffer<std::uint8_t>, HostBuffer<std::uint8_t>>;
/// Returns whether it can: where the engine is a value, its streams say so.
template <class Engine>
constexpr bool host_reads([[maybe_unused]] const typename Engine::Stream& stream) noexcept {
    if constexpr (may_host_read<Engine> && requires { stream.on_device(); }) {
        return !stream.on_device();
    } else {
        return may_host_read<Engine>;
    }
}
}  // namespace detail

}  // namespace shardkit
