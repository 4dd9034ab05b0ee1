// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit {

/// How a loss scale begins, grows and shrinks.
struct LossScaleOptions {
    double initial = 65536;
    double growth_factor = 2;
    double backoff_factor = 0.5;
    std::uint32_t growth_interval = 2000;
};

/// Refuses options of a loss scale that make no sense.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const LossScaleOptions& options, SourceLocation where = SourceLocation::current()) {
    if (!detail::is_finite(options.initial) || options.initial <= 0) {
        throw_invalid_argument(where, "LossScale: initial is ", detail::number_text(options.initial),
                               ", expected a finite number > 0");
    }
    if (!detail::is_finite(options.growth_factor) || options.growth_factor <= 1) {
        throw_invalid_argument(where, "LossScale: growth_factor is ", detail::number_text(options.growth_factor),
                               ", expected a finite number > 1");
    }
    if (!detail::is_finite(options.backoff_factor) || options.backoff_factor <= 0 || options.backoff_factor >= 1) {
        throw_invalid_argument(where, "LossScale: backoff_factor is ", detail::number_text(options.backoff_factor),
                               ", expected a number in (0, 1)");
    }
    if (options.growth_interval == 0) {
        throw_invalid_argument(where, "LossScale: growth_interval is 0, expected at least 1 step");
    }
}

/// Whether any gradient element of the step, on any rank that shares it, was infinite or NaN.
enum class FoundInf : std::uint8_t { no, yes };

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

    /// With these options, and what another one had learnt.
    constexpr LossScaleState restored(double value, std::uint32_t clean_steps) const noexcept {
        LossScaleState made = *this;
        made.value_ = value;
        made.clean_steps_ = clean_steps < options_.growth_interval ? clean_steps : options_.growth_interval - 1;
        return made;
    }

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

}  // namespace shardkit

namespace shardkit::detail {

/// One over the divisor and the loss scale: what gradients are multiplied by. `loss_scale`: null without one.
constexpr double unscale(double divisor_scale, const LossScaleState* loss_scale) noexcept {
    return loss_scale == nullptr ? divisor_scale : divisor_scale / loss_scale->value();
}

}  // namespace shardkit::detail
