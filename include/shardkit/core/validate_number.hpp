// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <string_view>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::rules {

/// The numbers that an option may be: finite ones from `least` to `most`.
struct NumberRange {
    double least;
    double most;
    std::string_view expected;  ///< in words: what a refusal says of it

    constexpr bool has(double value) const noexcept {
        return shardkit::detail::is_finite(value) && value >= least && value <= most;
    }
};

/// The range of rates and weight decays: 0 and above.
inline constexpr NumberRange not_negative{0, std::numeric_limits<double>::max(), "a finite number >= 0"};
/// The range of what is divided by: above 0.
inline constexpr NumberRange positive{std::numeric_limits<double>::min(), std::numeric_limits<double>::max(),
                                      "a finite number > 0"};
/// The range of betas: from 0 to below 1.
inline constexpr NumberRange fraction{0, 1 - std::numeric_limits<double>::epsilon() / 2, "a number in [0, 1)"};

}  // namespace shardkit::rules

namespace shardkit::detail {

/// Returns the number that an A holds in the place of `value`: infinity beyond its largest, and 0 below its smallest
/// normal one, as the subnormal ones below are 0 to programs that are compiled with -Ofast or --use_fast_math.
template <std::floating_point A>
constexpr double held(double value) noexcept {
    using Limits = std::numeric_limits<A>;
    if (!is_finite(value)) { return value; }
    const double size = value < 0 ? -value : value;
    if (size > double{Limits::max()}) { return value < 0 ? -Limits::infinity() : Limits::infinity(); }
    return size < double{Limits::min()} ? 0 : static_cast<double>(static_cast<A>(value));
}

[[noreturn, gnu::cold]] inline void refuse_number(std::string_view owner, std::string_view parameter, double value,
                                                  const rules::NumberRange& range, SourceLocation where, double used,
                                                  ElementType arithmetic) {
    const std::string there =
        range.has(value) ? concat(", which is ", number_text(used), " in ", name(arithmetic)) : std::string();
    throw_invalid_argument(where, owner, ": ", parameter, " is ", number_text(value), there, ", expected ",
                           range.expected);
}
/// Checks that a number is in `range`, and stays there in the arithmetic in which it is used, fp32 or fp64.
/// @throws std::invalid_argument unless it is
constexpr void validate_number(std::string_view owner, std::string_view parameter, double value,
                               const rules::NumberRange& range, SourceLocation where,
                               ElementType arithmetic = ElementType::fp64) {
    const double used = arithmetic == ElementType::fp32 ? held<float>(value) : held<double>(value);
    if (!range.has(value) || !range.has(used)) {
        refuse_number(owner, parameter, value, range, where, used, arithmetic);
    }
}

}  // namespace shardkit::detail
