// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace mesh_picture {

/// What the flags say, or nothing when --help was among them; `help` is what it prints.
/// @throws InputError for an unknown flag, a value that cannot be used, or no --mesh or --out
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help);

}  // namespace mesh_picture
