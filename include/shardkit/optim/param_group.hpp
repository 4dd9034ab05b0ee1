// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include <shardkit/core/validate_number.hpp>

namespace shardkit {

/// Hyper-parameters of their own for some parameters; the first group that matches a parameter decides.
///     {.matches = [](auto, auto name) { return name == "bias"; }, .weight_decay = 0}
struct ParamGroup {
    std::function<bool(std::string_view path, std::string_view parameter)> matches;
    double learning_rate_scale = 1;        ///< multiplies the optimizer's learning rate
    std::optional<double> weight_decay{};  ///< replaces the optimizer's
};

/// Refuses a group of parameters without a match function, or numbers out of range.
/// @throws std::invalid_argument that names what is out of range
inline void validate(const ParamGroup& group, SourceLocation where) {
    detail::validate_not_negative("ParamGroup", "learning_rate_scale", group.learning_rate_scale, where);
    if (group.weight_decay) {
        detail::validate_not_negative("ParamGroup", "weight_decay", *group.weight_decay, where);
    }
    if (!group.matches) { throw_invalid_argument(where, "ParamGroup: matches is empty, expected a function"); }
}

}  // namespace shardkit
