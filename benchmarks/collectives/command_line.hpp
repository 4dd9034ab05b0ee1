// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "options.hpp"

namespace benchmarks {

/// The options, checked; none, and `help` set, when help was asked for. `processes`: of the job, with --engine mpi
/// or nccl.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes = 1);

}  // namespace benchmarks
