// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit::detail {

/// Returns whether `value` is finite and not negative.
constexpr bool is_not_negative(double value) noexcept { return is_finite(value) && value >= 0; }

/// Checks that a number is finite and not negative.
/// @throws std::invalid_argument unless `value` is finite and not negative
constexpr void validate_not_negative(std::string_view owner, std::string_view parameter, double value,
                                     SourceLocation where) {
    if (!is_not_negative(value)) {
        throw_invalid_argument(where, owner, ": ", parameter, " is ", number_text(value),
                               ", expected a finite number >= 0");
    }
}

/// Checks that a number is in [0, 1).
/// @throws std::invalid_argument unless `value` is in [0, 1)
constexpr void validate_fraction(std::string_view owner, std::string_view parameter, double value,
                                 SourceLocation where) {
    if (!is_not_negative(value) || value >= 1) {
        throw_invalid_argument(where, owner, ": ", parameter, " is ", number_text(value),
                               ", expected a number in [0, 1)");
    }
}

}  // namespace shardkit::detail
