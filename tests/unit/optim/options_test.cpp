// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/step/loss_scale.hpp>

namespace sk = shardkit;

namespace options_test {

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The message of the refusal, without the place; empty when the options are accepted.
template <class Options>
std::string refusal(const Options& options) {
    try {
        validate(options, sk::SourceLocation{"user.cpp", 5});
    } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        CHECK(message.ends_with(" (user.cpp:5)"));
        return message.substr(0, message.size() - std::string(" (user.cpp:5)").size());
    }
    return "";
}

}  // namespace

TEST_CASE("AdamWOptions: PyTorch's defaults") {
    const sk::AdamWOptions options;
    CHECK(options == sk::AdamWOptions{1e-3, 0.9, 0.999, 1e-8, 1e-2});
    CHECK(refusal(options) == "");
    CHECK(refusal(sk::AdamWOptions{0, 0, 0, 0, 0}) == "");
}

TEST_CASE("AdamWOptions: bad numbers are named, with what was given and expected") {
    CHECK(refusal(sk::AdamWOptions{.learning_rate = -1}) ==
          "AdamW: learning_rate is -1, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.learning_rate = not_a_number}) ==
          "AdamW: learning_rate is nan, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.learning_rate = infinity}) ==
          "AdamW: learning_rate is inf, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.beta1 = 1}) == "AdamW: beta1 is 1, expected a number in [0, 1)");
    CHECK(refusal(sk::AdamWOptions{.beta1 = not_a_number}) == "AdamW: beta1 is nan, expected a number in [0, 1)");
    CHECK(refusal(sk::AdamWOptions{.beta2 = -0.5}) == "AdamW: beta2 is -0.5, expected a number in [0, 1)");
    CHECK(refusal(sk::AdamWOptions{.beta2 = 1.5}) == "AdamW: beta2 is 1.5, expected a number in [0, 1)");
    CHECK(refusal(sk::AdamWOptions{.epsilon = -1e-8}) == "AdamW: epsilon is -1e-08, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.epsilon = infinity}) == "AdamW: epsilon is inf, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.weight_decay = -0.1}) ==
          "AdamW: weight_decay is -0.1, expected a finite number >= 0");
    CHECK(refusal(sk::AdamWOptions{.weight_decay = not_a_number}) ==
          "AdamW: weight_decay is nan, expected a finite number >= 0");
}

TEST_CASE("LionOptions: the defaults of its authors' code, and bad numbers by name") {
    CHECK(sk::LionOptions{} == sk::LionOptions{1e-4, 0.9, 0.99, 0});
    CHECK(refusal(sk::LionOptions{}) == "");
    CHECK(refusal(sk::LionOptions{0, 0, 0, 0}) == "");
    CHECK(refusal(sk::LionOptions{.learning_rate = -1}) ==
          "Lion: learning_rate is -1, expected a finite number >= 0");
    CHECK(refusal(sk::LionOptions{.beta1 = 1}) == "Lion: beta1 is 1, expected a number in [0, 1)");
    CHECK(refusal(sk::LionOptions{.beta2 = -0.5}) == "Lion: beta2 is -0.5, expected a number in [0, 1)");
    CHECK(refusal(sk::LionOptions{.beta2 = not_a_number}) == "Lion: beta2 is nan, expected a number in [0, 1)");
    CHECK(refusal(sk::LionOptions{.weight_decay = infinity}) ==
          "Lion: weight_decay is inf, expected a finite number >= 0");
}

TEST_CASE("SgdOptions: bad numbers and impossible combinations are named") {
    CHECK(refusal(sk::SgdOptions{}) == "");
    CHECK(sk::SgdOptions{}.learning_rate == 1e-3);
    CHECK(refusal(sk::SgdOptions{.rule = sk::Momentum::nesterov, .momentum = 0.9}) == "");
    CHECK(refusal(sk::SgdOptions{.rule = sk::Momentum::classical, .momentum = 0}) == "");
    CHECK(refusal(sk::SgdOptions{.learning_rate = -infinity}) ==
          "SGD: learning_rate is -inf, expected a finite number >= 0");
    CHECK(refusal(sk::SgdOptions{.rule = sk::Momentum::classical, .momentum = -0.5}) ==
          "SGD: momentum is -0.5, expected a finite number >= 0");
    CHECK(refusal(sk::SgdOptions{.rule = sk::Momentum::classical, .momentum = not_a_number}) ==
          "SGD: momentum is nan, expected a finite number >= 0");
    CHECK(refusal(sk::SgdOptions{.weight_decay = -1}) == "SGD: weight_decay is -1, expected a finite number >= 0");
    CHECK(refusal(sk::SgdOptions{.rule = sk::Momentum::nesterov}) ==
          "SGD: momentum is 0 with Momentum::nesterov, expected a finite number > 0");
    CHECK(refusal(sk::SgdOptions{.momentum = 0.9}) ==
          "SGD: momentum is 0.9 with Momentum::none, expected 0, or Momentum::classical or nesterov");
}

TEST_CASE("LossScaleOptions: bad numbers are named") {
    const std::string range =
        ", expected a number from 1.1754943508222875e-38 to 3.4028234663852886e+38, as losses in fp32 can be "
        "multiplied by";
    CHECK(refusal(sk::LossScaleOptions{}) == "");
    CHECK(refusal(sk::LossScaleOptions{.initial = 0}) == "LossScale: initial is 0" + range);
    CHECK(refusal(sk::LossScaleOptions{.initial = not_a_number}) == "LossScale: initial is nan" + range);
    CHECK(refusal(sk::LossScaleOptions{.growth_factor = 1}) ==
          "LossScale: growth_factor is 1, expected a finite number > 1");
    CHECK(refusal(sk::LossScaleOptions{.growth_factor = infinity}) ==
          "LossScale: growth_factor is inf, expected a finite number > 1");
    CHECK(refusal(sk::LossScaleOptions{.backoff_factor = 1}) ==
          "LossScale: backoff_factor is 1, expected a number in (0, 1)");
    CHECK(refusal(sk::LossScaleOptions{.backoff_factor = 0}) ==
          "LossScale: backoff_factor is 0, expected a number in (0, 1)");
    CHECK(refusal(sk::LossScaleOptions{.growth_interval = 0}) ==
          "LossScale: growth_interval is 0, expected at least 1 step");
    CHECK(refusal(sk::LossScaleOptions{.initial = 1e300}) == "LossScale: initial is 1e+300" + range);
    CHECK(refusal(sk::LossScaleOptions{.minimum = 0}) == "LossScale: minimum is 0" + range);
    CHECK(refusal(sk::LossScaleOptions{.minimum = 1e-40}) == "LossScale: minimum is 1e-40" + range);
    CHECK(refusal(sk::LossScaleOptions{.hysteresis = 0}) ==
          "LossScale: hysteresis is 0, expected at least 1 overflow");
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        CHECK_THROWS_AS((sk::LossScale{rank, {.initial = -1}}), std::invalid_argument);
    });
}

}  // namespace options_test
