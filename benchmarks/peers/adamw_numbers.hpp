// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace benchmarks::peers {

/// What all sides of the comparison of AdamW begin with. Exact in fp64, and so the same wherever it is computed.
struct AdamWNumbers {
    static float parameter(std::uint64_t i) { return static_cast<float>(value(i, 2654435761U)); }
    static float gradient(std::uint64_t i) { return static_cast<float>(0.01 * value(i, 2246822519U)); }

  private:
    /// In [-0.5, 0.5).
    static double value(std::uint64_t i, std::uint64_t factor) {
        return static_cast<double>((i * factor + 1) & 0xffffffffU) * 0x1p-32 - 0.5;
    }
};

}  // namespace benchmarks::peers
