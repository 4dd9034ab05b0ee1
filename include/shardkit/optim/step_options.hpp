// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/step/divisor.hpp>

namespace shardkit SHARDKIT_FACE {

class LossScale;

/// What one call of an optimizer's step does with accumulated gradients.
struct StepOptions {
    Divisor divisor = mean;           ///< of the sum over the data ranks
    double max_norm = unlimited;      ///< that gradients are clipped to
    LossScale* loss_scale = nullptr;  ///< that the loss was multiplied by; null: none
    NormKind norm = NormKind::two;    ///< which one that is, and is returned
};

}  // namespace SHARDKIT_FACE
