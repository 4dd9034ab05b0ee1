// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/memory/host_buffer.hpp>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace benchmarks {

/// The yardstick: a plain copy between two buffers of this thread. Not the library's loops, so that a mistake in
/// these does not lower the bar.
class CopyYardstick {
  public:
    /// Below this many bytes stores past the caches are not tried: the data fits into a core's own cache.
    static constexpr std::size_t least_streamed = std::size_t{256} << 10U;

    explicit CopyYardstick(std::size_t bytes) : from_(bytes), to_(bytes) {}

    /// Through the caches, or as the C library sees fit.
    void copy() noexcept {
        std::memcpy(to_.data(), from_.data(), to_.size());
        keep();
    }

    /// Past the caches, in whole cache lines; equal to copy() where the processor has no such stores.
    void stream() noexcept {
#if defined(__SSE2__)
        const auto* from = reinterpret_cast<const __m128i*>(from_.data());
        auto* to = reinterpret_cast<__m128i*>(to_.data());
        const std::size_t words = to_.size() / 64 * 4;
        for (std::size_t i = 0; i < words; i += 4) {
            const __m128i a = _mm_load_si128(from + i);
            const __m128i b = _mm_load_si128(from + i + 1);
            const __m128i c = _mm_load_si128(from + i + 2);
            const __m128i d = _mm_load_si128(from + i + 3);
            _mm_stream_si128(to + i, a);
            _mm_stream_si128(to + i + 1, b);
            _mm_stream_si128(to + i + 2, c);
            _mm_stream_si128(to + i + 3, d);
        }
        std::memcpy(to + words, from + words, to_.size() % 64);
        _mm_sfence();
        keep();
#else
        copy();
#endif
    }

  private:
    /// Nobody reads the copies, yet they are to be made.
    static void keep() noexcept { asm volatile("" ::: "memory"); }

    shardkit::HostBuffer<std::uint8_t> from_;  // zeroed here: these are pages of their own
    shardkit::HostBuffer<std::uint8_t> to_;
};

}  // namespace benchmarks
