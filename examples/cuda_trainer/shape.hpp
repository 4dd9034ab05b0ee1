// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cuda_trainer {

/// The model: the bytes of a context are embedded and concatenated, projected to `width`, changed by residual blocks
/// (linear, bias, GELU, linear, bias) and turned into one logit for each byte that may follow.
struct Shape {
    static constexpr std::size_t vocabulary = 256;

    std::size_t context = 16;
    std::size_t width = 256;
    std::size_t layers = 2;
    std::size_t embedding = 32;

    constexpr std::size_t inputs() const { return context * embedding; }
    constexpr std::size_t hidden() const { return 4 * width; }

    // Elements of each parameter.
    constexpr std::size_t table() const { return vocabulary * embedding; }
    constexpr std::size_t projection() const { return width * inputs(); }
    constexpr std::size_t expand() const { return hidden() * width; }
    constexpr std::size_t contract() const { return width * hidden(); }
    constexpr std::size_t logits() const { return vocabulary * width; }
    constexpr std::size_t all() const {
        const std::size_t block = expand() + hidden() + contract() + width;
        return table() + projection() + width + layers * block + logits() + vocabulary;
    }
};

/// Source:  splitmix64, Steele, Lea and Flood, 2014
constexpr std::uint64_t mix(std::uint64_t state) {
    state += 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27U)) * 0x94d049bb133111ebU;
    return state ^ (state >> 31U);
}

/// Element `i` of a parameter before training: uniform with a variance of one over the inputs, biases zero. A pure
/// function of its arguments, so that every rank and every way to hold the parameters begins with the same model.
inline double initial_value(const Shape& shape, std::uint64_t seed, std::string_view path, std::string_view parameter,
                            std::uint64_t i) {
    double variance = 0;
    if (parameter == "table") { variance = 1; }
    if (parameter == "projection") { variance = 1 / static_cast<double>(shape.inputs()); }
    if (parameter == "expand") { variance = 1 / static_cast<double>(shape.width); }
    if (parameter == "contract") { variance = 0.5 / static_cast<double>(shape.hidden() * shape.layers); }
    if (parameter == "logits") { variance = 0.01 / static_cast<double>(shape.width); }
    if (variance == 0) { return 0; }
    std::uint64_t state = mix(seed);
    for (const std::string_view name : {path, parameter}) {
        for (const char letter : name) { state = mix(state ^ static_cast<unsigned char>(letter)); }
    }
    const double unit = static_cast<double>(mix(state + i) >> 11U) * 0x1p-53;
    return (2 * unit - 1) * std::sqrt(3 * variance);
}

}  // namespace cuda_trainer
