// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace train_gpt {

/// The sum of f(0) ... f(n - 1) over eight running sums in a fixed order: the same bits on every run, and
/// independent chains that a compiler turns into vector instructions (a single chain may not be reordered).
template <class A, class F>
constexpr A lane_sum(std::size_t n, F f) {
    constexpr std::size_t lanes = 8;
    std::array<A, lanes> sums{};
    const std::size_t whole = n / lanes * lanes;
    for (std::size_t i = 0; i < whole; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) { sums[lane] += f(i + lane); }
    }
    for (std::size_t lane = 0; lane < n - whole; ++lane) { sums[lane] += f(whole + lane); }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// The largest of f(0) ... f(n - 1), likewise in eight chains. A NaN may be passed over.
/// @pre n > 0
template <class F>
constexpr auto lane_max(std::size_t n, F f) {
    constexpr std::size_t lanes = 8;
    std::array<decltype(f(n)), lanes> highest{};
    highest.fill(f(0));
    const std::size_t whole = n / lanes * lanes;
    const auto take = [&](std::size_t lane, std::size_t i) {
        const auto value = f(i);
        highest[lane] = highest[lane] < value ? value : highest[lane];
    };
    for (std::size_t i = 0; i < whole; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) { take(lane, i + lane); }
    }
    for (std::size_t lane = 0; lane < n - whole; ++lane) { take(lane, whole + lane); }
    return *std::max_element(highest.begin(), highest.end());
}

}  // namespace train_gpt
