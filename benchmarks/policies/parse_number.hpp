// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "../../examples/common/parse.hpp"

namespace benchmarks::policies {

/// A finite decimal number from `least` to `most`.
/// @throws InputError for anything else
inline double parse_number(const std::string& flag, const std::string& given, double least, double most) {
    double value = 0;
    if (!program::read_whole(std::string_view(given), value) || !(value >= least && value <= most)) {
        throw program::bad_flag(flag, given, program::formatted("a number from %g to %g", least, most));
    }
    return value;
}

}  // namespace benchmarks::policies
