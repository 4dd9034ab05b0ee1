// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "options.hpp"

namespace train_gpt {

/// The program, with main's arguments. Returns the exit status.
int run_program(int count, const char* const* arguments);

/// Reads and checks the flags. Empty when only help was asked for, which is then in `help`. `processes`: of the
/// MPI job or of the launcher, which --engine mpi or nccl takes all, `ranks_per_host`: how many of them each host
/// has; `spare_processor`: whether each host has a processor beside theirs.
/// @throws InputError for an unknown flag, a missing value, or one that cannot be used
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes = 1, std::size_t ranks_per_host = 0,
                                          bool spare_processor = false);

/// Checks what involves several flags: ranks, batch and shape.
/// @throws InputError that names the flags, what was given and what was expected
void validate(const Options& options);

}  // namespace train_gpt
