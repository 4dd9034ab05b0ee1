// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

// What optimizers are told: hyper-parameters, and for which parameters they are others.

namespace shardkit {

/// AdamW's hyper-parameters with PyTorch's defaults.
struct AdamWOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;

    friend constexpr bool operator==(const AdamWOptions&, const AdamWOptions&) noexcept = default;
};

/// Which direction SGD follows: the gradient, its running sum, or the sum looked at one step ahead.
enum class Momentum : std::uint8_t { none, classical, nesterov };

/// SGD's hyper-parameters. `momentum` is the running sum's factor, 0 under Momentum::none.
struct SgdOptions {
    double learning_rate = 1e-3;
    Momentum rule = Momentum::none;
    double momentum = 0;
    double weight_decay = 0;

    friend constexpr bool operator==(const SgdOptions&, const SgdOptions&) noexcept = default;
};

/// Lion's hyper-parameters with the defaults of its authors' code (google/automl, lion). The paper advises a learning
/// rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.
struct LionOptions {
    double learning_rate = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;

    friend constexpr bool operator==(const LionOptions&, const LionOptions&) noexcept = default;
};

/// Which optimizer updates the parameters of a ParamGroup.
enum class UpdatedBy : std::uint8_t {
    own,     ///< the one that the group is given to
    another  ///< another one of a CombinedOptimizer
};

/// Hyper-parameters of their own for some parameters; the first group that matches a parameter decides. What is given
/// replaces the optimizer's member of that name; an optimizer without such a member refuses it.
///     {.matches = [](auto, auto name) { return name == "bias"; }, .weight_decay = 0}
struct ParamGroup {
    std::function<bool(std::string_view path, std::string_view parameter)> matches;
    double learning_rate_scale = 1;  ///< multiplies the optimizer's learning rate
    std::optional<double> weight_decay{};
    std::optional<double> beta1{};
    std::optional<double> beta2{};
    std::optional<double> epsilon{};
    std::optional<double> momentum{};
    UpdatedBy updated_by = UpdatedBy::own;
};

}  // namespace shardkit
