// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

/// Before a norm's partial sums: *scale becomes what every gradient is multiplied by, the partials zero. Run once, in
/// a stream's order; all pointers lead into the engine's memory.
struct BeginNorm {
    double divisor_scale;
    const LossScaleState* loss_scale;  ///< null without one
    double* scale;
    std::span<double> partials;

    constexpr void operator()() const {
        *scale = detail::unscale(divisor_scale, loss_scale);
        for (double& partial : partials) { partial = 0; }
    }
};

}  // namespace shardkit
