// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "input_error.hpp"

namespace program {

/// The file of a flag, which is there and has an end: another one may have none, or wait for who writes it.
/// @throws InputError that names the flag, the file and what was expected
inline std::ifstream open_file(const std::string& flag, const std::string& file) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) { throw bad_flag(flag, file, "a file, this is a folder"); }
    if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
        throw bad_flag(flag, file, "a regular file");
    }
    std::ifstream opened(file, std::ios::binary);
    if (!opened) {
        throw bad_flag(flag, file, std::string("a file that can be read (") + std::strerror(errno) + ")");
    }
    return opened;
}

inline std::string bytes_of(std::ifstream file) { return {std::istreambuf_iterator<char>(file), {}}; }

}  // namespace program
