// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace cuda_trainer {

/// What a run tells while it trains.
struct Report {
    /// Parameters, gradients, optimizer states and buffers of this rank, on the device; the activations are not in
    /// it.
    std::function<void(std::size_t bytes)> model_bytes;
    /// Every Options::every steps and at the last one, on every rank.
    std::function<void(std::size_t step, double loss)> step;
};

}  // namespace cuda_trainer
