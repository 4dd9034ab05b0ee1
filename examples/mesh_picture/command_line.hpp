// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "options.hpp"

namespace mesh_picture {

/// What --help prints.
std::string usage();

/// Flags and their values by turns.
/// @throws InputError for an unknown flag, a value that cannot be used, or no --mesh or --out
Options parse_command_line(std::span<const char* const> arguments);

}  // namespace mesh_picture
