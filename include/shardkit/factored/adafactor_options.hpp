// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// Hyper-parameters of Adafactor, with the defaults of torch.optim.Adafactor.
struct AdafactorOptions {
    double learning_rate = 1e-2;  ///< the most that a step moves by, relative to the parameter; 1 / sqrt(t) if less
    double beta2_decay = 0.8;     ///< second moments forget by 1 - t^-beta2_decay; torch has it with a minus
    double epsilon = 1.1920929e-07;  ///< the least root of a second moment; torch: that of the parameter's type
    double least_scale = 1e-3;       ///< the least root mean square of a parameter by which its steps are scaled
    double clip_threshold = 1;       ///< the most root mean square of a step before it is scaled
    double weight_decay = 0;
};

}  // namespace shardkit
