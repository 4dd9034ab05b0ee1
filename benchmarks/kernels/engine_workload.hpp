// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/context.hpp>

#include "kernel_workload.hpp"
#include "values.hpp"

namespace benchmarks::kernels {

/// What all kernels here have in common: calls in a row, and buffers in the engine's memory, which the host fills and
/// reads by copies.
template <class Engine>
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
    using Buffer = typename Engine::template Buffer<T>;

    explicit EngineWorkload(shardkit::Context<Engine>& context) : stream_(context.compute_stream()) {}

    template <class T>
    void put(std::span<T> buffer, const std::vector<T>& elements) {
        Engine::Kernels::copy_in(stream_, std::span<const T>(elements), buffer);
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
        Engine::Kernels::copy_out(stream_, buffer, std::span<T>(elements));
        return elements;
    }
    template <class Right>
    static std::uint64_t count(std::size_t n, Right right) {
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) { wrong += right(i) ? 0U : 1U; }
        return wrong;
    }

    typename Engine::Stream stream_;
};

}  // namespace benchmarks::kernels
