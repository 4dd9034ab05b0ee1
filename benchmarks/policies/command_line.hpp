// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace benchmarks::policies {

/// What the command line asks for; nothing when it was the help, which is then in `help`.
/// `processes`: of this job, for --engine mpi.
/// @throws InputError that names the flag, what was given and what was expected
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes);

}  // namespace benchmarks::policies
