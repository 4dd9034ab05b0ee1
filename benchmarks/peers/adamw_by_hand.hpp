// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include <shardkit/optim/adamw.hpp>

#include "adamw_numbers.hpp"
#include "aligned_floats.hpp"
#include "avx2_adamw.hpp"

namespace benchmarks::peers {

/// The hand-written loop on four arrays; nothing of the library but its options.
class AdamWByHand {
  public:
    explicit AdamWByHand(std::size_t n) : n_(n), parameter_(n), gradient_(n), exp_avg_(n), exp_avg_sq_(n) {
        for (std::size_t i = 0; i < n; ++i) {
            parameter_.data()[i] = AdamWNumbers::parameter(i);
            gradient_.data()[i] = AdamWNumbers::gradient(i);
        }
    }
    void step() {
        const shardkit::AdamWOptions options;
        beta1_power_ *= options.beta1;
        beta2_power_ *= options.beta2;
        const Avx2AdamW update{.decay = static_cast<float>(1 - options.learning_rate * options.weight_decay),
                               .beta1 = static_cast<float>(options.beta1),
                               .one_minus_beta1 = static_cast<float>(1 - options.beta1),
                               .beta2 = static_cast<float>(options.beta2),
                               .one_minus_beta2 = static_cast<float>(1 - options.beta2),
                               .step_size = static_cast<float>(options.learning_rate / (1 - beta1_power_)),
                               .inverse_root = static_cast<float>(1 / std::sqrt(1 - beta2_power_)),
                               .epsilon = static_cast<float>(options.epsilon)};
        update(parameter_.data(), gradient_.data(), exp_avg_.data(), exp_avg_sq_.data(), n_);
    }
    std::span<const float> parameters() const { return {parameter_.data(), n_}; }

  private:
    std::size_t n_;
    AlignedFloats parameter_;
    AlignedFloats gradient_;
    AlignedFloats exp_avg_;
    AlignedFloats exp_avg_sq_;
    double beta1_power_ = 1;
    double beta2_power_ = 1;
};

}  // namespace benchmarks::peers
