// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <shardkit/optim/found_inf.hpp>
#include <shardkit/optim/loss_scale_options.hpp>

namespace shardkit {

/// The numbers of a loss scale: shrinks at once when a step overflows, grows after an interval of clean steps.
/// Every rank that shares the step passes the same, reduced, verdict; then the scales stay equal without
/// communication. Trivially copyable: it lives where the engine's kernels read it.
///
/// Source:  torch.cuda.amp.GradScaler; Micikevicius et al., arXiv 1710.03740, section 3.2
class LossScaleState {
  public:
    constexpr LossScaleState() noexcept = default;
    /// @pre valid options
    constexpr explicit LossScaleState(const LossScaleOptions& options) noexcept
        : options_(options), value_(options.initial) {}

    constexpr double value() const noexcept { return value_; }

    /// Clean steps since the scale last changed; always below growth_interval.
    constexpr std::uint32_t clean_steps() const noexcept { return clean_steps_; }

    /// Call once per step, also for the steps that were skipped.
    /// @post value() is finite as a float: a growth past that is not made
    constexpr void update(FoundInf found) noexcept {
        if (found == FoundInf::yes) {
            value_ *= options_.backoff_factor;
            clean_steps_ = 0;
        } else if (++clean_steps_ == options_.growth_interval) {
            const double grown = value_ * options_.growth_factor;
            if (grown <= static_cast<double>(std::numeric_limits<float>::max())) { value_ = grown; }
            clean_steps_ = 0;
        }
    }

  private:
    LossScaleOptions options_{};
    double value_ = LossScaleOptions{}.initial;
    std::uint32_t clean_steps_ = 0;
};

/// One over the divisor and the loss scale: what gradients are multiplied by. `loss_scale`: null without one.
constexpr double unscale(double divisor_scale, const LossScaleState* loss_scale) noexcept {
    return loss_scale == nullptr ? divisor_scale : divisor_scale / loss_scale->value();
}

}  // namespace shardkit
