// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include <shardkit/core/error.hpp>
#include <shardkit/optim/global_norm.hpp>

namespace shardkit {

/// What a step multiplies every gradient by, and what the norm behind it said of overflow.
struct ClipCoefficient {
    double value = 1;
    FoundInf found_inf = FoundInf::no;
};

/// min(1, max_norm / (norm + 1e-6)); always multiplied, without a branch on whether it clips. A NaN norm stays
/// NaN, so that it shows.
/// Source:  torch.nn.utils.clip_grad_norm_
/// @throws  std::invalid_argument unless max_norm is finite and above zero
inline ClipCoefficient clip(const GlobalNorm& norm, double max_norm,
                            SourceLocation where = SourceLocation::current()) {
    if (!std::isfinite(max_norm) || max_norm <= 0) {
        throw_invalid_argument(where, "clip: max_norm is ", max_norm, ", expected a finite number > 0");
    }
    const double ratio = max_norm / (norm.value() + 1e-6);
    return {ratio > 1 ? 1 : ratio, norm.found_inf()};
}

/// A coefficient of one that keeps the norm's verdict on overflow, for steps with a loss scale and no clipping.
inline ClipCoefficient no_clip(const GlobalNorm& norm) noexcept { return {1, norm.found_inf()}; }

}  // namespace shardkit
