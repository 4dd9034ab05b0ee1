// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include <shardkit/core/lane_math.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

/// What a step multiplies every gradient by, and what the norm behind it says of overflow. Not yet numbers: they are
/// read from the norm's total in the engine's memory by the step itself, so that no host waits for them.
struct ClipCoefficient {
    /// Of the norm: sum of squares and count of non-finite partials; null where no norm was asked for.
    const double* total = nullptr;
    double max_norm = std::numeric_limits<double>::infinity();

    /// min(1, max_norm / (norm + 1e-6)); a NaN norm stays NaN, so that it shows. Where `total` can be read.
    constexpr double value() const {
        if (total == nullptr || max_norm == std::numeric_limits<double>::infinity()) { return 1; }
        const double ratio = max_norm / (square_root(total[0]) + 1e-6);
        return ratio > 1 ? 1 : ratio;
    }
    constexpr FoundInf found_inf() const { return total != nullptr && total[1] > 0 ? FoundInf::yes : FoundInf::no; }
};

}  // namespace shardkit
