// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <string>

namespace shardkit::detail {

/// Returns a number with the fewest digits that identify it. concat() takes only integers, as <charconv> would add a
/// tenth to the cost of the light headers.
template <std::floating_point T>
std::string number_text(T number) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

}  // namespace shardkit::detail
