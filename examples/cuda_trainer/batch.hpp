// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "random.hpp"

namespace cuda_trainer {

/// Samples [first, first + size) of the training data: sample s is a place in the text that the seed and s alone
/// decide, so that ranks and microbatches share out the same samples. The text lies on the device.
struct Batch {
    const std::uint8_t* text;
    std::size_t places;  ///< where a context and the byte after it fit
    std::size_t context;
    std::uint64_t seed;
    std::uint64_t first;
    std::size_t size;

    constexpr const std::uint8_t* begin(std::size_t b) const { return text + mix(mix(seed) + first + b) % places; }
    constexpr std::size_t token(std::size_t b, std::size_t position) const { return begin(b)[position]; }
    constexpr std::size_t target(std::size_t b) const { return begin(b)[context]; }
};

}  // namespace cuda_trainer
