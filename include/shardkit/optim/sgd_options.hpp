// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit {

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

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const SgdOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_not_negative("SGD", "learning_rate", options.learning_rate, where);
    detail::validate_not_negative("SGD", "momentum", options.momentum, where);
    detail::validate_not_negative("SGD", "weight_decay", options.weight_decay, where);
    if (options.rule == Momentum::none && options.momentum != 0) {
        throw_invalid_argument(where, "SGD: momentum is ", detail::number_text(options.momentum),
                               " with Momentum::none, expected 0, or Momentum::classical or nesterov");
    }
    if (options.rule == Momentum::nesterov && options.momentum == 0) {
        throw_invalid_argument(where, "SGD: momentum is 0 with Momentum::nesterov, expected a finite number > 0");
    }
}

}  // namespace shardkit
