// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/step_scalars.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

/// The first of a step's work: what all groups share, and the loss scale's reaction to the norm's verdict. Run once,
/// in a stream's order; all pointers lead into the engine's memory.
struct BeginStep {
    double divisor_scale;
    ClipCoefficient coefficient;
    LossScaleState* loss_scale;  ///< null without one
    StepScalars* scalars;

    constexpr void operator()() const {
        scalars->gradient_scale = detail::unscale(divisor_scale, loss_scale) * coefficient.value();
        scalars->skip = 0;
        if (loss_scale == nullptr) { return; }
        scalars->skip = coefficient.found_inf() == FoundInf::yes ? 1 : 0;
        loss_scale->update(coefficient.found_inf());
    }
};

}  // namespace shardkit
