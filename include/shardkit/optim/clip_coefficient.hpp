// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

/// Which norm of gradients: the root of the sum of squares, or the largest magnitude.
enum class NormKind : std::uint8_t { two, infinity };

/// What a step multiplies every gradient by, and what the norm behind it says of overflow. Not yet numbers: they are
/// read from the norm's total in the engine's memory by the step itself, so that no host waits for them.
struct ClipCoefficient {
    /// Of the norm: sum of squares and count of non-finite partials; null where no norm was asked for.
    const double* total = nullptr;
    double max_norm = std::numeric_limits<double>::infinity();  ///< unlimited: a coefficient of one
    /// Reduced::identity of the gradients that the norm was taken of, which the step takes alone; 0: any.
    std::uint64_t gradients = 0;

    /// min(1, max_norm / (norm + 1e-6)); NaN for a NaN norm. Where `total` can be read.
    constexpr double value() const {
        if (total == nullptr || !detail::is_finite(max_norm)) { return 1; }
        const double ratio = max_norm / (rules::square_root(total[0]) + 1e-6);
        return ratio > 1 ? 1 : ratio;
    }
    constexpr FoundInf found_inf() const { return total != nullptr && total[1] > 0 ? FoundInf::yes : FoundInf::no; }
};

/// For gradients that are not clipped: of a norm's verdict on overflow, which a loss scale needs, nothing is lost.
inline constexpr double unlimited = std::numeric_limits<double>::infinity();

}  // namespace shardkit
