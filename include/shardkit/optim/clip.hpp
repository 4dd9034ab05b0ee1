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

namespace detail {
/// Refuses what gradients cannot be clipped to.
inline void validate_max_norm(double max_norm, std::string_view verb, SourceLocation where) {
    if (max_norm > 0) { return; }
    throw_invalid_argument(where, verb, ": max_norm is ", number_text(max_norm), ", expected a number > 0, or ",
                           "unlimited");
}
}  // namespace detail

/// min(1, max_norm / (norm + 1e-6)); always multiplied, without a branch on whether it clips. A NaN norm makes
/// it NaN, and so the parameters.
/// Source:  torch.nn.utils.clip_grad_norm_
/// `max_norm`: unlimited for a coefficient of one.
/// @throws  std::invalid_argument unless max_norm is above zero
template <class Engine>
ClipCoefficient clip(const GlobalNorm<Engine>& norm, double max_norm,
                     SourceLocation where = SourceLocation::current()) {
    detail::validate_max_norm(max_norm, "clip", where);
    return {norm.data(where), max_norm, norm.gradients()};
}

}  // namespace shardkit
