// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/rank.hpp>

#include "../common/measure.hpp"

namespace benchmarks::kernels {

/// Element i of a buffer: a pseudo-random multiple of 1/128 between -1 and 1, exact in bf16; 0 is left out, so that
/// no element becomes so small that the processor slows down.
inline float value(std::uint64_t buffer, std::uint64_t i) noexcept {
    const std::uint64_t mixed = ((i + 1) * 0x9e3779b97f4a7c15U) ^ ((buffer + 1) * 0xd1b54a32d192ed03U);
    const auto number = static_cast<float>((mixed * 0xbf58476d1ce4e5b9U) >> 57U);  // below 128
    return i % 2 == 0 ? (number + 1) / 128 : -(number + 1) / 128;
}

/// n elements of a buffer of that number, from the given one on.
template <class T>
std::vector<T> values(std::uint64_t buffer, std::size_t n, std::size_t from = 0) {
    std::vector<T> elements(n);
    for (std::size_t i = 0; i < n; ++i) { elements[i] = static_cast<T>(value(buffer, from + i)); }
    return elements;
}

/// Whether `given` is `right` but for the rounding of a few fp32 operations.
inline bool near(double given, double right) noexcept {
    return std::abs(given - right) <= 4e-6 * (std::abs(right) + 1e-3);
}

/// A kernel with its buffers.
class KernelWorkload : public Workload {
  public:
    /// Gives one call to the stream; waits for nothing.
    virtual void once() = 0;
    /// That are packed; 0 for what packs nothing.
    virtual std::size_t tensors() const noexcept { return 0; }
    /// Ranges or pieces that a span is cut into; 0 for what takes spans whole.
    virtual std::size_t runs() const noexcept { return 0; }
    /// Groups of parameters; 0 for a kernel alone.
    virtual std::size_t groups() const noexcept { return 0; }
};

/// What all kernels here have in common: calls in a row, and buffers in the engine's memory, which the host fills and
/// reads by copies.
class EngineWorkload : public KernelWorkload {
  public:
    void call(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) {
            once();
            asm volatile("" ::: "memory");  // every call is made, whoever reads its results
        }
        stream_.synchronize();
    }

  protected:
    template <class T>
    using Buffer = shardkit::HostBuffer<T>;

    explicit EngineWorkload(shardkit::Rank& rank) : stream_(rank.compute_stream()) {}

    template <class T>
    void put(std::span<T> buffer, const std::vector<T>& elements) {
        shardkit::host::AnyKernels::copy_in(stream_, std::span<const T>(elements), buffer);
    }
    /// Values of that number, from the given one on.
    template <class T>
    void put_values(std::span<T> buffer, std::uint64_t number, std::size_t from = 0) {
        put(buffer, values<T>(number, buffer.size(), from));
    }
    /// What no result may keep.
    template <class T>
    void spoil(std::span<T> buffer) {
        put(buffer, std::vector<T>(buffer.size(), static_cast<T>(-3.0F)));
    }
    template <class T>
    std::vector<T> read(std::span<const T> buffer) const {
        std::vector<T> elements(buffer.size());
        shardkit::host::AnyKernels::copy_out(stream_, buffer, std::span<T>(elements));
        return elements;
    }
    template <class Right>
    static std::uint64_t count(std::size_t n, Right right) {
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) { wrong += right(i) ? 0U : 1U; }
        return wrong;
    }

    shardkit::Stream stream_;
};

}  // namespace benchmarks::kernels
