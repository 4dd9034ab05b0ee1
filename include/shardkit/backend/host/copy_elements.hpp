// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Instructions are in assembly: <emmintrin.h> would take a hundredth of the whole umbrella's compile time, and
// compilers drop the builtins behind it. No operand says that memory changes, as GCC 12 would keep what is copied on
// the stack: finish(), before which nobody reads what was streamed, says so.

namespace shardkit::host::detail {

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
#if defined(__AVX__)
#define SHARDKIT_STREAMED 32
#define SHARDKIT_STREAM "vmovntdq"
#else
#define SHARDKIT_STREAMED 16
#define SHARDKIT_STREAM "movntdq"
#endif
/// Writes half a cache line past the caches, in one instruction if the processor has such registers: two halves reach
/// a few percent less of the memory bandwidth.
/// @pre `to` is a multiple of 32; fast only where whole cache lines are written one after the other
inline void stream_half_line(const std::byte* from, std::byte* to) noexcept {
    // NOLINTNEXTLINE(modernize-use-using): a vector's type as GCC and clang define it
    typedef long long Word __attribute__((vector_size(SHARDKIT_STREAMED)));
    Word words[32 / sizeof(Word)];
    std::memcpy(words, from, sizeof words);
    auto* at = reinterpret_cast<Word*>(to);
    for (const Word& word : words) {
#if defined(__clang__)
        __builtin_nontemporal_store(word, at++);
#else
        asm volatile(SHARDKIT_STREAM " {%1, %a0|%a0, %1}" : : "p"(at++), "x"(word));
#endif
    }
}
#undef SHARDKIT_STREAMED
#undef SHARDKIT_STREAM

/// Copies full cache lines past the caches, and the ends through them.
inline void stream_bytes(const std::byte* from, std::byte* to, std::size_t count) noexcept {
    constexpr std::size_t line = 64;
    constexpr std::size_t half = line / 2;
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    if (count < head + line) {
        std::memcpy(to, from, count);
        return;
    }
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + line <= count; at += line) {
        // The whole line is read before any of it is written.
        std::byte words[2][half];
        std::memcpy(words[0], from + at, half);
        std::memcpy(words[1], from + at + half, half);
        stream_half_line(words[0], to + at);
        stream_half_line(words[1], to + at + half);
    }
    std::memcpy(to + at, from + at, count - at);
}
#endif

/// Copies `count` elements between ranges that do not overlap, written as `store` says; pointers may be null if
/// `count` is 0. After streaming, call `finish(store)` before another thread reads them.
template <class T>
void copy_elements(const T* from, T* to, std::size_t count, [[maybe_unused]] Store store = Store::cached) noexcept {
    if (count == 0) { return; }
#if defined(__SSE2__)
    if (store == Store::streaming) {
        return stream_bytes(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to),
                            count * sizeof(T));
    }
#endif
    std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
}

/// Orders streamed results before the thread's next operations; a release store does not.
inline void finish([[maybe_unused]] Store store) noexcept {
#if defined(__SSE2__)
    if (store == Store::streaming) { asm volatile("sfence" ::: "memory"); }
#endif
}

}  // namespace shardkit::host::detail
