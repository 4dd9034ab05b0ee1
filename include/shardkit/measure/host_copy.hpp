// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/measure/workload.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/context.hpp>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardkit::measure {

/// Times engines on the host's memory against a plain copy between two buffers of this thread. Not the library's
/// loops, so that a mistake in these does not lower the bar.
class HostCopy {
  public:
    /// How it copies: through the caches, or as the C library sees fit; and past them.
    static constexpr std::array<std::string_view, 2> ways{"memcpy", "non-temporal"};
    /// Below this many bytes stores past the caches are not tried: the data fits into a core's own cache.
    static constexpr std::size_t least_streamed = std::size_t{256} << 10U;

    template <class Engine>
    HostCopy(const Context<Engine>& context, std::size_t bytes) : from_(bytes), to_(bytes) {
        if (!shardkit::detail::host_reads<Engine>(context.compute_stream())) {
            throw_usage_error({},
                              "a copy of the host stands beside what is timed on a device; expected nccl::Engine");
        }
        for (std::size_t i = 0; i < bytes; ++i) { from_.data()[i] = copied_byte(i); }
    }

    /// How many of the ways are worth a try for so many bytes.
    static std::size_t ways_for(std::size_t bytes) noexcept { return bytes >= least_streamed ? 2 : 1; }

    /// Copies `times` times; they are over when it returns.
    void call(std::size_t way, std::size_t times) noexcept {
        for (std::size_t i = 0; i < times; ++i) {
            way == 0 ? copy() : stream();
            asm volatile("" ::: "memory");  // nobody reads the copies, yet they are to be made
        }
    }

  private:
    void copy() noexcept { std::memcpy(to_.data(), from_.data(), to_.size()); }

    /// In whole cache lines; equal to copy() where the processor has no such stores.
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
#else
        copy();
#endif
    }

    HostBuffer<std::uint8_t> from_;  // zeroed here: these are pages of their own
    HostBuffer<std::uint8_t> to_;
};

}  // namespace shardkit::measure
