// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/detail/number_text.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

/// What a step multiplies every gradient by, and what the norm behind it says of overflow. Not yet numbers: they are
/// read from the norm's total in the engine's memory by the step itself, so that no host waits for them.
struct ClipCoefficient {
    /// Of the norm: sum of squares and count of non-finite partials; null where no norm was asked for.
    const double* total = nullptr;
    double max_norm = std::numeric_limits<double>::infinity();
    /// Reduced::identity of the gradients that the norm was taken of, which the step takes alone; 0: any.
    std::uint64_t gradients = 0;

    /// min(1, max_norm / (norm + 1e-6)); NaN for a NaN norm. Where `total` can be read.
    constexpr double value() const {
        if (total == nullptr || !detail::is_finite(max_norm)) { return 1; }
        const double ratio = max_norm / (square_root(total[0]) + 1e-6);
        return ratio > 1 ? 1 : ratio;
    }
    constexpr FoundInf found_inf() const { return total != nullptr && total[1] > 0 ? FoundInf::yes : FoundInf::no; }
};

/// Refuses a norm that gradients cannot be clipped to.
/// @throws std::invalid_argument unless it is finite and above zero
inline void validate_max_norm(double max_norm, std::string_view verb,
                              SourceLocation where = SourceLocation::current()) {
    if (!detail::is_finite(max_norm) || max_norm <= 0) {
        throw_invalid_argument(where, verb, ": max_norm is ", detail::number_text(max_norm),
                               ", expected a finite number > 0");
    }
}

/// min(1, max_norm / (norm + 1e-6)); always multiplied, without a branch on whether it clips. A NaN norm makes
/// it NaN, and so the parameters.
/// Source:  torch.nn.utils.clip_grad_norm_
/// @throws  std::invalid_argument unless max_norm is finite and above zero
template <class Engine>
ClipCoefficient clip(const GlobalNorm<Engine>& norm, double max_norm,
                     SourceLocation where = SourceLocation::current()) {
    validate_max_norm(max_norm, "clip", where);
    return {norm.data(where), max_norm, norm.gradients()};
}

}  // namespace shardkit
