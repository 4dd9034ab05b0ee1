// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Before a loop: how often nvcc writes it out.
#ifdef __CUDA_ARCH__
#define SHARDKIT_PRAGMA(text) _Pragma(#text)
#define SHARDKIT_UNROLL(times) SHARDKIT_PRAGMA(unroll times)
#else
#define SHARDKIT_UNROLL(times)
#endif

namespace shardkit::detail {

/// The largest number of bytes that a thread of a kernel reads or writes with one instruction.
inline constexpr std::size_t widest_access = 16;

/// The number of elements in a vector, which one thread processes at a time, in a pass over spans of these types. The
/// widest type fills the widest access, and adjacent threads fill whole sectors of memory in every type.
template <class... T>
inline constexpr std::size_t lanes_for = widest_access / std::max({sizeof(T)...});

/// `Lanes` adjacent elements, of at most 16 bytes, aligned so that they are copied with one access.
template <class T, std::size_t Lanes>
struct alignas(Lanes * sizeof(T)) AlignedPack {
    static_assert(Lanes * sizeof(T) <= widest_access);
    T lane[Lanes];
};

/// Returns `pointer`, which is in device memory where a kernel runs, although the compiler may not know.
template <class T>
constexpr T* in_memory(T* pointer) noexcept {
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(pointer));
#endif
    return pointer;
}

/// Loads `Lanes` adjacent elements from `from` with one access.
/// @pre `from` is aligned as AlignedPack<T, Lanes> is, and in device memory where a kernel calls
template <std::size_t Lanes, class T>
constexpr AlignedPack<T, Lanes> load(const T* from) noexcept {
    return *reinterpret_cast<const AlignedPack<T, Lanes>*>(in_memory(from));
}

/// Stores `Lanes` adjacent elements with one access.
/// @pre `to` is aligned as AlignedPack<T, Lanes> is, and in device memory where a kernel calls
template <std::size_t Lanes, class T>
constexpr void store(const AlignedPack<T, Lanes>& pack, T* to) noexcept {
    *reinterpret_cast<AlignedPack<T, Lanes>*>(in_memory(to)) = pack;
}

/// Returns the distance in elements from `at` down to the nearest address where a pack may begin.
template <std::size_t Lanes, class T>
constexpr std::uint32_t elements_past_pack(const T* at) noexcept {
    constexpr std::size_t alignment = alignof(AlignedPack<T, Lanes>);
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) % alignment / sizeof(T));
}

/// Returns `pointer`, which a kernel has read from a table, or writes packs to in several branches. The compiler
/// otherwise does not know that it points to device memory.
template <class T>
constexpr T* from_table(T* pointer) noexcept {
#ifdef __CUDA_ARCH__
    // A copy for each use: otherwise equal code of two branches with one pointer is merged, which splits the packs of
    // one branch.
    asm("" : "+l"(pointer));
#endif
    return in_memory(pointer);
}

}  // namespace shardkit::detail
