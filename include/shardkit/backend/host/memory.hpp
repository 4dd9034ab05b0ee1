// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/memory/stored_elements.hpp>

namespace shardkit::host {

/// Elements in memory whose type is a number of bytes: what an engine's verbs write. In two words, so that calls hand
/// it on in registers.
struct Memory {
    std::byte* at = nullptr;
    std::size_t size : 8 = 1;  ///< bytes of an element
    std::size_t count : 56 = 0;
    static constexpr std::size_t most = (std::size_t{1} << 56U) - 1;

    constexpr Memory() noexcept = default;
    constexpr Memory(std::byte* memory, std::size_t n, std::size_t bytes_each) noexcept
        : at(memory), size(bytes_each & 0xFFU), count(n & most) {}
    template <class T>
    Memory(std::span<T> elements) noexcept  // NOLINT(google-explicit-constructor)
        : Memory(reinterpret_cast<std::byte*>(elements.data()), elements.size(), sizeof(T)) {}
    Memory(const shardkit::detail::StoredElements& elements) noexcept  // NOLINT(google-explicit-constructor)
        : Memory(static_cast<std::byte*>(elements.data()), elements.size(), size_of(elements.type())) {}

    constexpr std::size_t bytes() const noexcept { return count * size; }
    /// Returns `n` elements from element `begin` on.
    constexpr Memory part(std::size_t begin, std::size_t n) const noexcept { return {at + begin * size, n, size}; }
};

/// The same of what they read.
struct ConstMemory {
    const std::byte* at = nullptr;
    std::size_t size : 8 = 1;
    std::size_t count : 56 = 0;

    constexpr ConstMemory() noexcept = default;
    constexpr ConstMemory(const std::byte* memory, std::size_t n, std::size_t bytes_each) noexcept
        : at(memory), size(bytes_each & 0xFFU), count(n & Memory::most) {}
    constexpr ConstMemory(const Memory& same) noexcept  // NOLINT(google-explicit-constructor)
        : ConstMemory(same.at, same.count, same.size) {}
    template <class T>
    ConstMemory(std::span<const T> elements) noexcept  // NOLINT(google-explicit-constructor)
        : ConstMemory(reinterpret_cast<const std::byte*>(elements.data()), elements.size(), sizeof(T)) {}
    ConstMemory(const shardkit::detail::StoredElements& elements) noexcept  // NOLINT(google-explicit-constructor)
        : ConstMemory(Memory(elements)) {}

    constexpr std::size_t bytes() const noexcept { return count * size; }
    constexpr ConstMemory part(std::size_t begin, std::size_t n) const noexcept {
        return {at + begin * size, n, size};
    }
};

}  // namespace shardkit::host
