// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <string>

namespace shardkit::detail {

/// Writes a number with the fewest digits that say which it is: for concat(), which takes whole numbers only, as
/// <charconv> would be a tenth of what the light headers cost.
template <std::floating_point T>
std::string number_text(T number) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

}  // namespace shardkit::detail
