// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Instructions are in assembly: <emmintrin.h> would take a hundredth of the whole umbrella's compile time, and
// compilers drop the builtins behind it.

namespace shardkit::host::detail {

/// Copies `count` elements between ranges that do not overlap; pointers may be null if `count` is 0.
template <class T>
void copy_elements(const T* from, T* to, std::size_t count) noexcept {
    if (count > 0) { std::memcpy(static_cast<void*>(to), from, count * sizeof(T)); }
}

/// How results are written: through the caches, or past them (streaming). Streaming saves reading the overwritten
/// cache lines, and is faster only where the data does not fit the caches anyway.
enum class Store : std::uint8_t { cached, streaming };

/// The largest number of bytes, over all ranks, for which results are written through the caches: three quarters of
/// the cache that a few cores of common processors share. Measured on a processor that shares 32 MiB: with 16 MiB
/// streaming takes up to 1.6 times as long, with 24 MiB both are equally fast, from 32 MiB on streaming is faster.
inline constexpr std::size_t streaming_bytes = std::size_t{24} << 20U;

/// Returns how to write results when `bytes` bytes are read or written.
constexpr Store store_for(std::size_t bytes) noexcept {
    return bytes > streaming_bytes ? Store::streaming : Store::cached;
}

#if defined(__SSE2__)
/// Copies a cache line past the caches, after all of it was read.
/// @pre `to` begins a cache line
inline void stream_line(const std::byte* from, std::byte* to) noexcept {
#if defined(__AVX__)
    constexpr std::size_t bytes = 32;  // halves reach a few percent less of the memory bandwidth
#else
    constexpr std::size_t bytes = 16;
#endif
    // NOLINTNEXTLINE(modernize-use-using): a vector's type as GCC and clang define it
    typedef long long Word __attribute__((vector_size(bytes)));
    Word words[64 / bytes];
    std::memcpy(words, from, sizeof words);
    for (const Word& word : words) {
        auto* const place = reinterpret_cast<char(*)[bytes]>(to);
#if defined(__AVX__)
        asm volatile("vmovntdq {%1, %0|%0, %1}" : "=m"(*place) : "x"(word));
#else
        asm volatile("movntdq {%1, %0|%0, %1}" : "=m"(*place) : "x"(word));
#endif
        to += bytes;
    }
}

/// Copies full cache lines past the caches, and the ends through them.
inline void stream_bytes(const std::byte* from, std::byte* to, std::size_t count) noexcept {
    constexpr std::size_t line = 64;
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    if (count < head + line) {
        std::memcpy(to, from, count);
        return;
    }
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + line <= count; at += line) { stream_line(from + at, to + at); }
    std::memcpy(to + at, from + at, count - at);
}
#endif

/// Copies `count` elements between ranges that do not overlap, written as `store` says. After streaming, call
/// `finish(store)` before another thread reads them.
template <class T>
void copy_elements(const T* from, T* to, std::size_t count, [[maybe_unused]] Store store) noexcept {
#if defined(__SSE2__)
    if (store == Store::streaming && count > 0) {
        stream_bytes(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to), count * sizeof(T));
        return;
    }
#endif
    copy_elements(from, to, count);
}

/// Orders streamed results before the thread's next operations; a release store does not.
inline void finish([[maybe_unused]] Store store) noexcept {
#if defined(__SSE2__)
    if (store == Store::streaming) { asm volatile("sfence" ::: "memory"); }
#endif
}

}  // namespace shardkit::host::detail
