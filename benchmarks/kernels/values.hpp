// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/context.hpp>

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

}  // namespace benchmarks::kernels
