// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// Bytes to train on, and in words where they came from.
struct Text {
    std::vector<std::uint8_t> bytes;
    std::string source;
};

/// Reads `file`, or without a name the repository's own headers and documentation.
/// @throws InputError when it is missing, empty, or shorter than one sequence and the byte after it
Text read_text(const std::string& file, std::size_t sequence);

}  // namespace train_gpt
