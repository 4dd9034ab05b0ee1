// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/rank.hpp>

#include "workload.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace benchmarks {

/// A plain copy between two buffers, beside which engines are timed: of this thread, or of the rank's device where
/// that has the engine's memory. Not the library's loops, so that a mistake in these does not lower the bar.
class PlainCopy {
  public:
    /// Below this many bytes stores past the caches are not tried: the data fits into a core's own cache.
    static constexpr std::size_t least_streamed = std::size_t{256} << 10U;

    PlainCopy(const shardkit::Rank& rank, std::size_t bytes) : stream_(rank.communication_stream()) {
        shardkit::HostBuffer<std::uint8_t> values(bytes);
        for (std::size_t i = 0; i < bytes; ++i) { values.data()[i] = copied_byte(i); }
        if (shardkit::detail::host_reads(rank.compute_stream())) {
            from_ = std::move(values);
            to_ = shardkit::HostBuffer<std::uint8_t>(bytes);
        } else {
            device_from_ = rank.template buffer<std::uint8_t>(bytes);
            device_to_ = rank.template buffer<std::uint8_t>(bytes);
            shardkit::host::AnyKernels::copy_in(stream_, std::span<const std::uint8_t>(values.span()),
                                                device_from_.span());
        }
    }

    /// Returns how it copies: through the caches, or as the C library sees fit; and past them.
    std::string_view way(std::size_t number) const noexcept {
        return on_device() ? "cudaMemcpyAsync" : number == 0 ? "memcpy" : "non-temporal";
    }
    /// Returns how many of the ways are worth a try for so many bytes.
    std::size_t ways_for(std::size_t bytes) const noexcept {
        if (on_device()) { return 1; }
        return bytes >= least_streamed ? 2 : 1;
    }

    /// Copies `times` times; they are over when it returns.
    void call(std::size_t way, std::size_t times) {
        if (on_device()) { return copy_on_device(times); }
        for (std::size_t i = 0; i < times; ++i) {
            way == 0 ? copy() : stream();
            asm volatile("" ::: "memory");  // nobody reads the copies, yet they are to be made
        }
    }

  private:
    bool on_device() const noexcept { return device_to_.size() > 0; }
    void copy_on_device(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            stream_.give_copy(device_from_.data(), device_to_.data(), device_to_.size());
        }
        stream_.synchronize();
    }
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

    shardkit::Stream stream_;
    shardkit::HostBuffer<std::uint8_t> device_from_{};
    shardkit::HostBuffer<std::uint8_t> device_to_{};
    shardkit::HostBuffer<std::uint8_t> from_;  // zeroed here: these are pages of their own
    shardkit::HostBuffer<std::uint8_t> to_;
};

}  // namespace benchmarks
