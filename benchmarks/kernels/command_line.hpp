// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace benchmarks::kernels {

/// The options, checked; none, and `help` set, when help was asked for.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help);

}  // namespace benchmarks::kernels
