// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "options.hpp"

namespace cuda_trainer {

/// @throws InputError when it cannot be read, or is too short for one sample
inline std::vector<std::uint8_t> read_text(const std::string& file, const Shape& shape) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        throw InputError("--text " + file + ": expected a file, this is a folder");
    }
    std::ifstream input(file, std::ios::binary);
    if (!input) {
        throw InputError("--text " + file + ": expected a file that can be read (" + std::strerror(errno) + ")");
    }
    std::vector<std::uint8_t> text((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
    if (text.size() <= shape.context) {
        throw InputError("--text " + file + ": it has " + std::to_string(text.size()) + " bytes, expected at least " +
                         std::to_string(shape.context + 1) + ", one more than --context");
    }
    return text;
}

}  // namespace cuda_trainer
