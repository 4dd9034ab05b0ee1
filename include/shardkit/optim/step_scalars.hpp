// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit {

/// What one step computes for all groups, in the engine's memory.
struct StepScalars {
    double gradient_scale = 1;  ///< one over the divisor and the loss scale, times the clip coefficient
    std::uint32_t skip = 0;     ///< not 0: gradients overflowed under a loss scale, and the step changes nothing
};

}  // namespace shardkit
