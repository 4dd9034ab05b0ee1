// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "random.hpp"

namespace cuda_trainer {

/// The training data on the device: sample s is a place in the text that the seed and s alone decide, so that ranks
/// and microbatches share out the same samples.
struct Samples {
    const std::uint8_t* text;
    std::size_t places;  ///< where a context and the byte after it fit
    std::uint64_t seed;

    constexpr const std::uint8_t* begin(std::uint64_t s) const { return text + mix(mix(seed) + s) % places; }
};

/// Samples behind each other on the device: each the bytes of a context and the one that follows.
struct Batch {
    const std::uint8_t* bytes;
    std::size_t context;
    std::size_t size;

    constexpr const std::uint8_t* begin(std::size_t b) const { return bytes + b * (context + 1); }
    constexpr std::size_t token(std::size_t b, std::size_t position) const { return begin(b)[position]; }
    constexpr std::size_t target(std::size_t b) const { return begin(b)[context]; }
};

}  // namespace cuda_trainer
