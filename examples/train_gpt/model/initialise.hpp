// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <type_traits>

#include "config.hpp"

namespace train_gpt {

/// One step of splitmix64: a bijection of 64-bit words that scatters neighbouring inputs.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

/// FNV-1a of a text or of tokens, from `seed` on: that of tokens that are bytes is the text's.
template <class Text>
constexpr std::uint64_t hash(const Text& text, std::uint64_t seed) noexcept {
    std::uint64_t h = seed ^ 0xcbf29ce484222325U;
    for (const auto c : text) {
        h = (h ^ static_cast<std::make_unsigned_t<std::remove_const_t<decltype(c)>>>(c)) * 0x100000001b3U;
    }
    return mix(h);
}

/// Uniform in (0, 1], from a word's upper 53 bits.
constexpr double unit_interval(std::uint64_t word) noexcept {
    return static_cast<double>((word >> 11U) + 1) * 0x1p-53;
}

/// The first value of every parameter as a function of its name and place alone, so that each world size and each
/// policy starts from the same model. Normal with deviation 0.02; projections back into the residual stream
/// are smaller by sqrt(2 * layers), as in GPT-2; norms start at 1 and biases at 0, as what pads the vocabulary.
class Initialiser {
  public:
    Initialiser(std::uint64_t seed, const ModelConfig& config)
        : seed_(seed),
          residual_deviation_(0.02 / std::sqrt(2.0 * static_cast<double>(config.layers))),
          of_vocabulary_(std::uint64_t{config.vocabulary} * config.width) {}

    /// `index` counts elements of the whole parameter in row-major order.
    double operator()(std::string_view path, std::string_view parameter, std::uint64_t index) const {
        if (parameter.ends_with("bias")) { return 0.0; }
        if (parameter.starts_with("norm")) { return 1.0; }
        if (index >= of_vocabulary_ && (parameter == "wte" || path == "logits")) { return 0.0; }
        const bool residual = parameter == "projection_weight" || parameter == "down_weight";
        return (residual ? residual_deviation_ : 0.02) * normal(path, parameter, index);
    }

  private:
    /// Box and Muller's transform of two counter-based uniform numbers.
    double normal(std::string_view path, std::string_view parameter, std::uint64_t index) const {
        const std::uint64_t key = mix(hash(parameter, hash(path, mix(seed_))) + 2 * index);
        const double radius = std::sqrt(-2.0 * std::log(unit_interval(key)));
        return radius * std::cos(2.0 * std::numbers::pi * unit_interval(mix(key + 1)));
    }

    std::uint64_t seed_;
    double residual_deviation_;
    std::uint64_t of_vocabulary_;
};

}  // namespace train_gpt
