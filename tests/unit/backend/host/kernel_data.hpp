// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>

namespace shardkit::test {

/// `value` rounded to T through T's arithmetic type, one element at a time: the oracle of the vector loops.
template <class T>
T rounded(double value) {
    return static_cast<T>(static_cast<Arithmetic<T>>(value));
}

template <class T>
double widened(T element) {
    return static_cast<Arithmetic<T>>(element);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Normally distributed numbers over several magnitudes, all representable in fp16's range.
template <class T>
std::vector<T> random_elements(std::size_t count, std::uint32_t seed, double smallest = 1e-3, double largest = 10) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> exponent(std::log(smallest), std::log(largest));
    std::vector<T> elements;
    for (std::size_t i = 0; i < count; ++i) {
        elements.push_back(rounded<T>(normal(random) * std::exp(exponent(random))));
    }
    return elements;
}

template <class T>
std::vector<T> random_squares(std::size_t count, std::uint32_t seed) {
    std::vector<T> elements = random_elements<T>(count, seed);
    for (T& element : elements) { element = rounded<T>(widened(element) * widened(element)); }
    return elements;
}

}  // namespace shardkit::test
