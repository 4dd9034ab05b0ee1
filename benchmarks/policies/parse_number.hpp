// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/text_format.hpp"

namespace benchmarks::policies {

/// A finite decimal number from `least` to `most`.
/// @throws InputError for anything else
inline double parse_number(const std::string& flag, const std::string& given, double least, double most) {
    double value = 0;
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, value);
    if (error != std::errc{} || stop != end || !(value >= least && value <= most)) {
        throw program::bad_flag(flag, given, program::formatted("a number from %g to %g", least, most));
    }
    return value;
}

}  // namespace benchmarks::policies
