// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/core/element.hpp>
#include <shardkit/memory/stored_elements.hpp>

namespace shardkit::host {

/// Elements in memory whose type is a number of bytes: what an engine's verbs write, or where they are const, read.
/// In two words, so that calls hand it on in registers.
template <class Byte>
struct MemoryOf {
    static constexpr std::size_t most = (std::size_t{1} << 56U) - 1;

    Byte* at = nullptr;
    std::size_t size : 8 = 1;  ///< bytes of an element
    std::size_t count : 56 = 0;

    constexpr MemoryOf() noexcept = default;
    constexpr MemoryOf(Byte* memory, std::size_t n, std::size_t bytes_each) noexcept
        : at(memory), size(bytes_each & 0xFFU), count(n & most) {}
    template <class T>
    requires(!std::is_same_v<T, Byte>) constexpr MemoryOf(
        const MemoryOf<T>& same) noexcept  // NOLINT(google-explicit-constructor)
        : MemoryOf(same.at, same.count, same.size) {}
    template <class T>
    requires(std::is_const_v<T> == std::is_const_v<Byte>) MemoryOf(std::span<T> elements)
    noexcept  // NOLINT(google-explicit-constructor)
        : MemoryOf(reinterpret_cast<Byte*>(elements.data()), elements.size(), sizeof(T)) {}
    MemoryOf(const shardkit::detail::StoredElements& elements) noexcept  // NOLINT(google-explicit-constructor)
        : MemoryOf(static_cast<Byte*>(elements.data()), elements.size(), size_of(elements.type())) {}

    constexpr std::size_t bytes() const noexcept { return count * size; }
    /// Returns `n` elements from element `begin` on.
    constexpr MemoryOf part(std::size_t begin, std::size_t n) const noexcept { return {at + begin * size, n, size}; }
};
/// Elements that an engine's verbs write.
using Memory = MemoryOf<std::byte>;
/// Elements that they read.
using ConstMemory = MemoryOf<const std::byte>;

}  // namespace shardkit::host
