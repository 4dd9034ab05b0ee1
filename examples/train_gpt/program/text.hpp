// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../model/config.hpp"

namespace train_gpt {

/// Tokens to train on, and in words where they came from.
struct Text {
    std::vector<Token> tokens;
    std::string source;
};

/// Reads `file`, or without a name the repository's own headers and documentation.
/// @throws InputError when it is missing, shorter than one sequence and the token after it, or has tokens that are
/// not of the model's vocabulary
Text read_text(const std::string& file, const ModelConfig& model);

}  // namespace train_gpt
