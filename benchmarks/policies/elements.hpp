// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include <shardkit/core/bf16.hpp>
#include <shardkit/param/params.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// All elements of a group.
template <class T>
struct Elements : shardkit::Param<"elements", T, shardkit::dynamic> {};

/// f(std::type_identity<T>{})
template <class F>
auto with_element(ElementKind kind, F f) {
    switch (kind) {
        case ElementKind::fp64:
            return f(std::type_identity<double>{});
        case ElementKind::fp32:
            return f(std::type_identity<float>{});
        case ElementKind::bf16:
            return f(std::type_identity<shardkit::bf16>{});
    }
    throw std::invalid_argument("with_element: no such type");
}

/// Numbers of a check run, exact in every element type: multiples of 1/4 for gradients and of 1/32 for parameters.
struct Values {
    /// Spreads its input; neighbours are unlike.
    static constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
        x = (x + 1) * 0x9E3779B97F4A7C15ULL;
        x = (x ^ (x >> 29U)) * 0xBF58476D1CE4E5B9ULL;
        return x ^ (x >> 32U);
    }
    /// Element `i` of group `g` before the first step.
    static constexpr double parameter(std::size_t g, std::size_t i) noexcept {
        return (static_cast<double>(mixed(i * 4099 + g) % 63) - 31) / 32;
    }
    /// The mean over the data ranks of a microbatch's gradient.
    static constexpr double mean_gradient(std::size_t g, std::size_t i, std::size_t step,
                                          std::size_t microbatch) noexcept {
        return (static_cast<double>(mixed((i * 4099 + g) * 65537 + step * 257 + microbatch) % 5) - 2) / 4;
    }
    /// What rank `r` of `n` data ranks has besides: pairs cancel over all ranks, and over no part of them for all i.
    static constexpr double deviation(std::size_t i, std::size_t r, std::size_t n) noexcept {
        const std::size_t place = (r + i) % n;
        if (n % 2 == 1 && place == n - 1) { return 0; }
        const double size = static_cast<double>(1 + place / 2 % 3) / 4;
        return place % 2 == 0 ? size : -size;
    }
};

}  // namespace benchmarks::policies
