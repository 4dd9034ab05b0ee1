// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

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

}  // namespace cuda_trainer
