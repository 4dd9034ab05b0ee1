// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numbers>

#include <shardkit/core/error.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>

namespace shardkit {

/// How a LearningRate goes on behind its warm-up.
enum class Decay : std::uint8_t {
    constant,     ///< at its peak
    linear,       ///< along a straight line to `last`
    cosine,       ///< along half a cosine to `last`
    inverse_root  ///< as the root of warm_up / step
};

/// A learning rate as a function of the step, from 0: rises in a straight line, then falls. A value, of which a
/// resumed run needs nothing but the step.
///     constexpr LearningRate rate{.peak = 3e-4, .warm_up = 2000, .steps = 100'000, .last = 0.1};
///     optimizer.set_learning_rate(rate(step));
/// It is `last` from step `steps` on. Step `warm_up` has the peak, step 0 `first`, which is 0 unless said.
/// Source:  torch.optim.lr_scheduler.SequentialLR of LinearLR(start_factor=first) and CosineAnnealingLR, LinearLR or
///          ConstantLR; transformers.get_inverse_sqrt_schedule
struct LearningRate {
    double peak = 1e-3;
    std::uint64_t warm_up = 0;  ///< steps
    std::uint64_t steps = 0;    ///< of the run, with the warm-up; of linear and cosine alone
    double first = 0;           ///< these two are parts of the peak
    double last = 0;            ///< of linear and cosine alone
    Decay decay = Decay::cosine;

    /// @throws std::invalid_argument as validate
    constexpr double operator()(std::uint64_t step, SourceLocation where = SourceLocation::current()) const;
};

/// Refuses what is no schedule.
/// @throws std::invalid_argument that names the member, what was given and what was expected
constexpr void validate(const LearningRate& rate, SourceLocation where = SourceLocation::current()) {
    detail::validate_number("LearningRate", "peak", rate.peak, rules::not_negative, where);
    detail::validate_number("LearningRate", "first", rate.first, rules::not_negative, where);
    detail::validate_number("LearningRate", "last", rate.last, rules::not_negative, where);
    const bool ends = rate.decay == Decay::linear || rate.decay == Decay::cosine;
    require_argument(!ends || rate.steps > rate.warm_up, where, "LearningRate: steps is ", rate.steps,
                     ", expected more than the warm_up, ", rate.warm_up);
    if (!ends && (rate.steps != 0 || rate.last != 0)) {
        throw_invalid_argument(where, "LearningRate: steps is ", rate.steps, " and last ",
                               detail::number_text(rate.last),
                               ", expected none of a decay that has no end: Decay::linear or cosine have one");
    }
    require_argument(rate.decay != Decay::inverse_root || rate.warm_up > 0, where,
                     "LearningRate: warm_up is 0, expected at least 1 step with Decay::inverse_root");
}

constexpr double LearningRate::operator()(std::uint64_t step, SourceLocation where) const {
    validate(*this, where);
    if (step < warm_up) {
        return peak * (first + (1 - first) * static_cast<double>(step) / static_cast<double>(warm_up));
    }
    if (decay == Decay::constant) { return peak; }
    if (decay == Decay::inverse_root) {
        return peak * rules::square_root(static_cast<double>(warm_up) / static_cast<double>(step));
    }
    if (step >= steps) { return peak * last; }
    const double done = static_cast<double>(step - warm_up) / static_cast<double>(steps - warm_up);
    if (decay == Decay::linear) { return peak * (1 + (last - 1) * done); }
    return peak * (last + (1 - last) * (1 + __builtin_cos(std::numbers::pi * done)) / 2);
}

}  // namespace shardkit
