// SPDX-License-Identifier: Apache-2.0
// Schedules of learning rates against the closed forms of PyTorch and transformers, and their recurrences.
#include <shardkit/optim/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace learning_rate_test {

namespace {

constexpr double pi = 3.141592653589793;
constexpr int warm_up = 7, total = 40;
constexpr double peak = 0.3;

bool close(double a, double b) { return std::abs(a - b) <= 1e-15; }

/// torch.optim.lr_scheduler, _get_closed_form_lr.
double linear_lr(double base, double start_factor, double end_factor, int total_iters, int last_epoch) {
    return base * (start_factor + (end_factor - start_factor) * std::min(total_iters, last_epoch) / total_iters);
}
double cosine_annealing_lr(double base, double eta_min, int t_max, int last_epoch) {
    return eta_min + (base - eta_min) * (1 + std::cos(pi * last_epoch / t_max)) / 2;
}

constexpr sk::LearningRate cosine{.peak = peak, .warm_up = warm_up, .steps = total, .first = 0.25, .last = 0.1};
static_assert(cosine.peak == peak);
static_assert(sk::LearningRate{.peak = 2, .warm_up = 4, .decay = sk::Decay::constant}(2) == 1);
static_assert(sk::LearningRate{.peak = 2, .steps = 4, .decay = sk::Decay::linear}(1) == 1.5);

}  // namespace

TEST_CASE("learning rate: a warm-up and half a cosine are SequentialLR of LinearLR and CosineAnnealingLR") {
    for (int t = 0; t <= total; ++t) {
        const double expected = t < warm_up ? linear_lr(peak, 0.25, 1, warm_up, t)
                                            : cosine_annealing_lr(peak, 0.1 * peak, total - warm_up, t - warm_up);
        CAPTURE(t);
        CHECK(close(cosine(static_cast<std::uint64_t>(t)), expected));
    }
    CHECK(cosine(warm_up) == peak);
    CHECK(cosine(total) == peak * 0.1);
    CHECK(cosine(10 * total) == peak * 0.1);  // where PyTorch's rises again
    // CosineAnnealingLR.get_lr, which goes from one rate to the next.
    const double eta_min = 0.1 * peak;
    double rate = peak;
    for (int t = 1; t <= total - warm_up; ++t) {
        const double t_max = total - warm_up;
        rate = (1 + std::cos(pi * t / t_max)) / (1 + std::cos(pi * (t - 1) / t_max)) * (rate - eta_min) + eta_min;
        CHECK(std::abs(cosine(static_cast<std::uint64_t>(warm_up + t)) - rate) < 1e-12);
    }
}

TEST_CASE("learning rate: straight lines, constant rates and inverse roots") {
    const sk::LearningRate linear{
        .peak = peak, .warm_up = warm_up, .steps = total, .last = 0.5, .decay = sk::Decay::linear};
    const sk::LearningRate constant{.peak = peak, .warm_up = warm_up, .first = 0.5, .decay = sk::Decay::constant};
    const sk::LearningRate root{.peak = peak, .warm_up = warm_up, .decay = sk::Decay::inverse_root};
    for (int t = 0; t < 2 * total; ++t) {
        CAPTURE(t);
        const auto step = static_cast<std::uint64_t>(t);
        const bool rises = t < warm_up;
        CHECK(close(linear(step), rises ? linear_lr(peak, 0, 1, warm_up, t)
                                        : linear_lr(peak, 1, 0.5, total - warm_up, t - warm_up)));
        CHECK(close(constant(step), linear_lr(peak, 0.5, 1, warm_up, t)));
        // transformers' _get_inverse_sqrt_schedule_lr_lambda with timescale = num_warmup_steps.
        CHECK(close(root(step), peak * (rises ? static_cast<double>(t) / warm_up
                                              : 1 / std::sqrt(static_cast<double>(t) / warm_up))));
    }
    CHECK(sk::LearningRate{.peak = peak, .steps = 2}(0) == peak);
    CHECK(sk::LearningRate{.peak = peak, .decay = sk::Decay::constant}(5) == peak);
}

TEST_CASE("learning rate: what is no schedule is refused by name") {
    const auto message = [](const sk::LearningRate& rate) {
        return thrown_message<std::invalid_argument>([&] { static_cast<void>(rate(3)); });
    };
    CHECK(has(message({.peak = -1, .steps = 9}), "LearningRate: peak is -1, expected a finite number >= 0"));
    CHECK(has(message({.steps = 9, .last = std::numeric_limits<double>::quiet_NaN()}), "LearningRate: last is nan"));
    CHECK(has(message({.steps = 9, .first = -0.5}), "LearningRate: first is -0.5"));
    CHECK(has(message({}), "LearningRate: steps is 0, expected more than the warm_up, 0"));
    CHECK(has(message({.warm_up = 9, .steps = 9}), "LearningRate: steps is 9, expected more than the warm_up, 9"));
    CHECK(has(message({.steps = 9, .decay = sk::Decay::constant}),
              "LearningRate: steps is 9 and last 0, expected none of a decay that has no end"));
    CHECK(has(message({.warm_up = 5, .last = 0.5, .decay = sk::Decay::inverse_root}),
              "LearningRate: steps is 0 and last 0.5, expected none"));
    CHECK(has(message({.decay = sk::Decay::inverse_root}),
              "LearningRate: warm_up is 0, expected at least 1 step with Decay::inverse_root"));
}

}  // namespace learning_rate_test
