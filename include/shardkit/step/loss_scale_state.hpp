// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <shardkit/core/error.hpp>
#include <shardkit/core/validate_number.hpp>

namespace shardkit {

/// When a loss scale forgets the overflows that it has tolerated.
enum class ForgetOverflows : std::uint8_t {
    by_growth,     ///< when the scale grows, as DeepSpeed and Megatron do
    by_clean_step  ///< at the next step without overflow: DeepSpeed's consecutive_hysteresis, PyTorch with Apex
};

/// How a loss scale begins, grows and shrinks.
struct LossScaleOptions {
    double initial = 65536;
    double growth_factor = 2;
    double backoff_factor = 0.5;
    std::uint32_t growth_interval = 2000;
    /// The scale never shrinks below this, or below `initial` where that is less. A step that overflows at the
    /// minimum is skipped, and the scale stays. DeepSpeed and Megatron use 1; PyTorch has no minimum.
    double minimum = 1;
    /// The number of overflows that shrink the scale: with 2, the first one only skips its step. PyTorch uses 1.
    std::uint32_t hysteresis = 1;
    ForgetOverflows forget = ForgetOverflows::by_growth;  ///< matters with a hysteresis above 1
};

/// Checks the options of a loss scale.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const LossScaleOptions& options, SourceLocation where = SourceLocation::current()) {
    using Double = std::numeric_limits<double>;
    constexpr rules::NumberRange scale{std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                                       "a number from 1.1754943508222875e-38 to 3.4028234663852886e+38, as losses in "
                                       "fp32 can be multiplied by"};
    constexpr rules::NumberRange growth{1 + Double::epsilon(), Double::max(), "a finite number > 1"};
    constexpr rules::NumberRange backoff{Double::min(), rules::fraction.most, "a number in (0, 1)"};
    detail::validate_number("LossScale", "initial", options.initial, scale, where);
    detail::validate_number("LossScale", "minimum", options.minimum, scale, where);
    detail::validate_number("LossScale", "growth_factor", options.growth_factor, growth, where);
    detail::validate_number("LossScale", "backoff_factor", options.backoff_factor, backoff, where);
    if (options.growth_interval == 0) {
        throw_invalid_argument(where, "LossScale: growth_interval is 0, expected at least 1 step");
    }
    if (options.hysteresis == 0) {
        throw_invalid_argument(where, "LossScale: hysteresis is 0, expected at least 1 overflow");
    }
}

/// Whether any gradient element of the step was infinite or NaN, on any rank that shares the step.
enum class FoundInf : std::uint8_t { no, yes };

/// The numbers of a loss scale: it shrinks when a step overflows, and grows after an interval of steps without
/// overflow. Every rank that shares the step passes the same, reduced, result, so that the scales stay equal without
/// communication. Trivially copyable: it lives where the engine's kernels read it.
///
/// Source:  torch.cuda.amp.GradScaler; Micikevicius et al., arXiv 1710.03740, section 3.2; minimum and hysteresis:
///          DeepSpeed's DynamicLossScaler, Apex' update_scale_hysteresis
class LossScaleState {
  public:
    constexpr LossScaleState() noexcept = default;
    /// @pre valid options
    constexpr explicit LossScaleState(const LossScaleOptions& options) noexcept
        : options_(options), value_(options.initial) {}

    constexpr double value() const noexcept { return value_; }

    /// Returns the number of steps without overflow since the scale last changed; always below growth_interval.
    constexpr std::uint32_t clean_steps() const noexcept { return clean_steps_; }

    /// Whether the last step was skipped, and the number of skipped steps since the scale was made.
    constexpr FoundInf last() const noexcept { return last_; }
    constexpr std::uint64_t skipped_steps() const noexcept { return skipped_steps_; }
    /// Returns the number of overflows that the scale has tolerated and not forgotten; always below hysteresis.
    constexpr std::uint32_t overflows() const noexcept { return overflows_; }

    /// Returns a scale with these options that continues from the given numbers, as far as the options allow: a value
    /// below the minimum, or NaN, becomes the minimum.
    constexpr LossScaleState restored(double value, std::uint32_t clean_steps,
                                      std::uint32_t overflows = 0) const noexcept {
        LossScaleState made = *this;
        made.value_ = value >= minimum() ? (value <= largest ? value : largest) : minimum();
        made.clean_steps_ = clean_steps < options_.growth_interval ? clean_steps : options_.growth_interval - 1;
        made.overflows_ = overflows < options_.hysteresis ? overflows : options_.hysteresis - 1;
        return made;
    }

    /// Records the result of one step. Call it once per step, also for skipped steps.
    /// @post value() is finite as a float, and not below the minimum: a growth beyond the largest float is not made
    constexpr void update(FoundInf found) noexcept {
        last_ = found;
        if (found == FoundInf::yes) {
            ++skipped_steps_;
            clean_steps_ = 0;
            if (overflows_ + 1 < options_.hysteresis) {
                ++overflows_;
                return;
            }
            const double shrunk = value_ * options_.backoff_factor;
            value_ = shrunk < minimum() ? minimum() : shrunk;
            return;
        }
        if (options_.forget == ForgetOverflows::by_clean_step) { overflows_ = 0; }
        if (++clean_steps_ < options_.growth_interval) { return; }
        clean_steps_ = 0;
        overflows_ = 0;
        const double grown = value_ * options_.growth_factor;
        if (grown <= largest) { value_ = grown; }
    }

  private:
    static constexpr auto largest = static_cast<double>(std::numeric_limits<float>::max());
    constexpr double minimum() const noexcept {
        return options_.minimum < options_.initial ? options_.minimum : options_.initial;
    }

    LossScaleOptions options_{};
    double value_ = LossScaleOptions{}.initial;
    std::uint64_t skipped_steps_ = 0;
    std::uint32_t clean_steps_ = 0;
    std::uint32_t overflows_ = 0;
    FoundInf last_ = FoundInf::no;
};

}  // namespace shardkit

namespace shardkit::detail {

/// Returns the factor of gradients: one over the divisor and the loss scale. `loss_scale` is null without one.
constexpr double unscale(double divisor_scale, const LossScaleState* loss_scale) noexcept {
    return loss_scale == nullptr ? divisor_scale : divisor_scale / loss_scale->value();
}

}  // namespace shardkit::detail
