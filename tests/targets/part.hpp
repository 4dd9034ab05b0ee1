// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

/// What the kernels of one part of a program make of the same numbers.
struct Made {
    std::vector<float> exact;   ///< arithmetic in fp32
    std::vector<float> stored;  ///< behind states of 8 bits
};

constexpr std::size_t count = 1003;  // no whole number of registers
constexpr int steps = 4;
inline float gradient_of(std::size_t i, int step) {
    return static_cast<float>(step + 1) * (static_cast<float>(i % 7) - 3);
}
inline float start_of(std::size_t i) { return 0.01F * static_cast<float>(i % 13); }

#define DECLARE_PART(name) \
    namespace name {       \
    Made made();           \
    }
DECLARE_PART(plain)
DECLARE_PART(avx2)
DECLARE_PART(v3)
DECLARE_PART(avx512)
DECLARE_PART(fast)
