// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/number_text.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/global_norm.hpp>

namespace shardkit {

/// min(1, max_norm / (norm + 1e-6)); always multiplied, without a branch on whether it clips. A NaN norm stays
/// NaN, so that it shows.
/// Source:  torch.nn.utils.clip_grad_norm_
/// @throws  std::invalid_argument unless max_norm is finite and above zero
template <class Engine>
ClipCoefficient clip(const GlobalNorm<Engine>& norm, double max_norm,
                     SourceLocation where = SourceLocation::current()) {
    if (!std::isfinite(max_norm) || max_norm <= 0) {
        throw_invalid_argument(where, "clip: max_norm is ", detail::number_text(max_norm),
                               ", expected a finite number > 0");
    }
    return {norm.data(where), max_norm};
}

/// A coefficient of one that keeps the norm's verdict on overflow, for steps with a loss scale and no clipping.
template <class Engine>
ClipCoefficient no_clip(const GlobalNorm<Engine>& norm, SourceLocation where = SourceLocation::current()) {
    return {norm.data(where)};
}

}  // namespace shardkit
