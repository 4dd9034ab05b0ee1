// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>

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

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const AdamWOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_not_negative("AdamW", "learning_rate", options.learning_rate, where);
    detail::validate_fraction("AdamW", "beta1", options.beta1, where);
    detail::validate_fraction("AdamW", "beta2", options.beta2, where);
    detail::validate_not_negative("AdamW", "epsilon", options.epsilon, where);
    detail::validate_not_negative("AdamW", "weight_decay", options.weight_decay, where);
}

}  // namespace shardkit
