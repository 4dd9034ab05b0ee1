// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// The instructions that are named are the compilers' builtins: <emmintrin.h> would be a hundredth of what the whole
// umbrella takes to read.

namespace shardkit::host::detail {

/// Copies `count` elements between ranges that do not overlap; null pointers are fine when there are none.
template <class T>
void copy_elements(const T* from, T* to, std::size_t count) noexcept {
    if (count > 0) { std::memcpy(static_cast<void*>(to), from, count * sizeof(T)); }
}

/// Says how results are written: through the caches, or past them. Going past them saves reading the lines that are
/// overwritten and wins only where the data does not fit the caches anyway.
enum class Store : std::uint8_t { cached, streaming };

/// Bounds the bytes of memory that is read or written, all ranks together, up to which results go through the caches:
/// three quarters of what processors commonly share among a few of their cores. Measured on one that shares 32 MiB:
/// with 16 MiB streaming takes up to 1.6 times as long, with 24 MiB both ways are as fast, from 32 MiB on streaming
/// is.
inline constexpr std::size_t streaming_bytes = std::size_t{24} << 20U;

/// Returns how results are best written where `bytes` bytes are read or written.
constexpr Store store_for(std::size_t bytes) noexcept {
    return bytes > streaming_bytes ? Store::streaming : Store::cached;
}

/// Writes `Bytes` bytes, those of a register, past the caches where the processor can, and at once where it has such
/// registers: halves reach a few percent less of the memory's bandwidth.
/// @pre `to` is a multiple of `Bytes`; fast only where whole cache lines are written one after the other
template <std::size_t Bytes>
void stream_register(const void* from, void* to) noexcept {
#if defined(__AVX__)
    if constexpr (Bytes == 32) {
        // NOLINTNEXTLINE(modernize-use-using): a vector's type as GCC and clang define it
        typedef long long Word __attribute__((vector_size(32)));
        Word word;
        std::memcpy(&word, from, Bytes);
#if defined(__clang__)
        __builtin_nontemporal_store(word, static_cast<Word*>(to));
#else
        __builtin_ia32_movntdq256(static_cast<Word*>(to), word);
#endif
        return;
    }
#endif
#if defined(__SSE2__)
    if constexpr (Bytes == 16 || Bytes == 32) {
        // NOLINTNEXTLINE(modernize-use-using): a vector's type as GCC and clang define it
        typedef long long Word __attribute__((vector_size(16)));
        Word words[Bytes / 16];
        std::memcpy(words, from, Bytes);
        for (std::size_t i = 0; i < Bytes / 16; ++i) {
#if defined(__clang__)
            __builtin_nontemporal_store(words[i], static_cast<Word*>(to) + i);
#else
            __builtin_ia32_movntdq(static_cast<Word*>(to) + i, words[i]);
#endif
        }
        return;
    }
#endif
    std::memcpy(to, from, Bytes);
}

#if defined(__SSE2__)
/// Copies whole cache lines past the caches, the ends through them.
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
        // Read as a whole before any of it is written.
        std::byte words[2][half];
        std::memcpy(words[0], from + at, half);
        std::memcpy(words[1], from + at + half, half);
        stream_register<half>(words[0], to + at);
        stream_register<half>(words[1], to + at + half);
    }
    std::memcpy(to + at, from + at, count - at);
}
#endif

/// Copies `count` elements between ranges that do not overlap, written as `store` says; after streaming,
/// `finish(store)` before another thread may look.
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

/// Orders streamed results before whatever the thread does next: releases do not.
inline void finish([[maybe_unused]] Store store) noexcept {
#if defined(__SSE2__)
    if (store == Store::streaming) { __builtin_ia32_sfence(); }
#endif
}

}  // namespace shardkit::host::detail
