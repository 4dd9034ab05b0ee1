// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "fuzz/optimizers.hpp"
#include "test_size.hpp"

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
    CHECK(refusal(sk::AdamWOptions{0, 0, 0, 1e-300, 0}) == "");
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
    CHECK(refusal(sk::AdamWOptions{.epsilon = -1e-8}) == "AdamW: epsilon is -1e-08, expected a finite number > 0");
    CHECK(refusal(sk::AdamWOptions{.epsilon = infinity}) == "AdamW: epsilon is inf, expected a finite number > 0");
    CHECK(refusal(sk::AdamWOptions{.epsilon = 0}) == "AdamW: epsilon is 0, expected a finite number > 0");
    CHECK(refusal(sk::AdamWOptions{.learning_rate = 1e200, .weight_decay = 1e200}) ==
          "AdamW: learning_rate * weight_decay is inf, expected a finite number >= 0");
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

TEST_CASE("MuonOptions: bad numbers and a rule that it has not are named") {
    CHECK(refusal(sk::MuonOptions{}) == "");
    CHECK(refusal(sk::MuonOptions{.learning_rate = 0, .momentum = 0, .weight_decay = 0}) == "");
    CHECK(refusal(sk::MuonOptions{.learning_rate = infinity}) ==
          "Muon: learning_rate is inf, expected a finite number >= 0");
    CHECK(refusal(sk::MuonOptions{.momentum = 1}) == "Muon: momentum is 1, expected a number in [0, 1)");
    CHECK(refusal(sk::MuonOptions{.weight_decay = not_a_number}) ==
          "Muon: weight_decay is nan, expected a finite number >= 0");
    CHECK(refusal(sk::MuonOptions{.epsilon = 0}) == "Muon: epsilon is 0, expected a finite number > 0");
    CHECK(refusal(sk::MuonOptions{.rule = sk::Momentum::none}) ==
          "Muon: rule is Momentum::none, expected classical or nesterov");
}

namespace {

/// The refusal of an optimizer of `Master`s with these options, without the place; empty when they are accepted.
template <class Gather, class Master, class Optimizer, class Options>
std::string refusal_by(const Options& options, const std::vector<sk::ParamGroup>& groups = {}) {
    std::string message;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        using Precision = sk::Precision<Gather, Gather, Gather, Master>;
        using List = sk::TensorList<Gather>;
        sk::Sharded<List, sk::NoShard, Precision> layer(rank, "layer", List{{"weight", {2, 3}}});
        sk::Model model{layer};
        try {
            if constexpr (std::is_same_v<Options, sk::MuonOptions>) {
                sk::Muon made{model, options, {}, {}, groups};
            } else {
                Optimizer made{model, options, groups};
            }
        } catch (const std::invalid_argument& error) { message = error.what(); }
    });
    CHECK((message.empty() || message.find("options_test.cpp:") != std::string::npos));
    return message.substr(0, message.find(" ("));
}

/// Options that fp64 has and fp32 has not.
template <class Optimizer, class Options>
void check_held(const Options& options, const std::string& text) {
    CAPTURE(text);
    CHECK(refusal_by<double, double, Optimizer>(options) == "");
    CHECK(refusal_by<float, double, Optimizer>(options) == "");
    CHECK(refusal_by<float, float, Optimizer>(options) == text);
    CHECK(refusal_by<sk::bf16, float, Optimizer>(options) == text);
    CHECK(refusal_by<sk::bf16, sk::bf16, Optimizer>(options) == text);
}

}  // namespace

TEST_CASE("options of every rule are refused where the arithmetic that uses them makes something else of them") {
    constexpr double almost_one = 1 - 1e-9;
    const std::string is_one = " is 0.999999999, which is 1 in fp32, expected a number in [0, 1)";
    const std::string is_zero = ", which is 0 in fp32, expected a finite number > 0";
    const std::string is_infinite = ", which is inf in fp32, expected a finite number >= 0";
    check_held<sk::AdamW>(sk::AdamWOptions{.epsilon = 1e-50}, "AdamW: epsilon is 1e-50" + is_zero);
    check_held<sk::AdamW>(sk::AdamWOptions{.epsilon = 1e-40}, "AdamW: epsilon is 1e-40" + is_zero);
    check_held<sk::AdamW>(sk::AdamWOptions{.beta1 = almost_one}, "AdamW: beta1" + is_one);
    check_held<sk::AdamW>(sk::AdamWOptions{.learning_rate = 0, .weight_decay = 1e39},
                          "AdamW: weight_decay is 1e+39" + is_infinite);
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{.learning_rate = 1e39}) ==
          "AdamW: learning_rate is 1e+39" + is_infinite);
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{.learning_rate = 3e38}) ==
          "AdamW: learning_rate is 3e+38, expected at most 1e30, as steps are multiples of it");
    check_held<sk::AMSGrad>(sk::AdamWOptions{.beta2 = almost_one}, "AMSGrad: beta2" + is_one);
    check_held<sk::Lion>(sk::LionOptions{.beta1 = almost_one}, "Lion: beta1" + is_one);
    check_held<sk::Lion>(sk::LionOptions{.beta2 = almost_one}, "Lion: beta2" + is_one);
    check_held<sk::Lion>(sk::LionOptions{.learning_rate = 1e20, .weight_decay = 1e20},
                         "Lion: learning_rate * weight_decay is 1e+40" + is_infinite);
    check_held<sk::SGD>(sk::SgdOptions{.rule = sk::Momentum::classical, .momentum = 1e39},
                        "SGD: momentum is 1e+39" + is_infinite);
    check_held<sk::SGD>(sk::SgdOptions{.weight_decay = 1e39}, "SGD: weight_decay is 1e+39" + is_infinite);
    check_held<sk::MuonOptions>(sk::MuonOptions{.epsilon = 1e-50}, "Muon: epsilon is 1e-50" + is_zero);
    check_held<sk::MuonOptions>(sk::MuonOptions{.momentum = almost_one}, "Muon: momentum" + is_one);
    // A rate that is less than any number of fp32 is 0, as at a schedule's end.
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{.learning_rate = 1e-60}) == "");

    const auto all = [](auto, auto) { return true; };
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{}, {{.matches = all, .epsilon = 0.0}}) ==
          "AdamW: epsilon is 0, expected a finite number > 0");
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{}, {{.matches = all, .beta2 = almost_one}}) ==
          "AdamW: beta2" + is_one);
    CHECK(refusal_by<float, float, sk::AdamW>(sk::AdamWOptions{.learning_rate = 1e20},
                                              {{.matches = all, .learning_rate_scale = 1e20}}) ==
          "AdamW: learning_rate is 1e+40" + is_infinite);
}

TEST_CASE("options that are set later are refused alike, and nothing has changed then") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<sk::TensorList<float>, sk::NoShard> layer(rank, "layer",
                                                              sk::TensorList<float>{{"weight", {2, 3}}});
        sk::Model model{layer};
        const auto all = [](auto, auto) { return true; };
        sk::AdamW optimizer{model, {}, {{.matches = all, .learning_rate_scale = 1e10}}};
        CHECK_THROWS_AS(optimizer.set_options({.epsilon = 1e-50}), std::invalid_argument);
        CHECK_THROWS_AS(optimizer.set_learning_rate(1e30), std::invalid_argument);  // times the group's scale
        CHECK_THROWS_AS(optimizer.set_learning_rate_factor(1e33), std::invalid_argument);
        CHECK_THROWS_AS(optimizer.set_param_groups({{.matches = all, .epsilon = 1e-50}}), std::invalid_argument);
        CHECK(optimizer.options() == sk::AdamWOptions{});
        CHECK(!optimizer.param_groups()[0].epsilon);
        optimizer.set_learning_rate(1e20);
    });
}

TEST_CASE("random optimizers: options at the edges are refused or mean what they say, rates of 0 among them") {
    // The short form of `tests/fuzz/run optimizers`.
    const std::uint64_t cases = test_size::reduced() ? 100 : 1000;
    std::array<std::size_t, 2> outcomes{};
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        REQUIRE_NOTHROW(++outcomes[static_cast<std::size_t>(optimizers::run(seed))]);
    }
    CHECK(outcomes[static_cast<std::size_t>(optimizers::Outcome::stepped)] > cases / 4);
    CHECK(outcomes[static_cast<std::size_t>(optimizers::Outcome::refused)] > cases / 10);
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
