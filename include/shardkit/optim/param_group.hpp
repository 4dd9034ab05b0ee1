// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace shardkit {

/// Hyper-parameters of their own for some parameters; the first group that matches a parameter decides.
///     {.matches = [](auto, auto name) { return name == "bias"; }, .weight_decay = 0}
struct ParamGroup {
    std::function<bool(std::string_view path, std::string_view parameter)> matches;
    double learning_rate_scale = 1;        ///< multiplies the optimizer's learning rate
    std::optional<double> weight_decay{};  ///< replaces the optimizer's
};

}  // namespace shardkit
