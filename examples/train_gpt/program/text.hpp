// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "encoding.hpp"
#include "options.hpp"

namespace train_gpt {

/// Tokens to train on, and in words where they came from.
struct Text {
    std::vector<Token> tokens;
    std::string source;
    Encoding encoding;
};

/// Reads the file of --tokens or --text, or without one the repository's own headers and documentation.
/// @throws InputError when it is missing, shorter than one sequence and the token after it, has tokens that are not
/// of the model's vocabulary, or is no whole file of tokens; likewise when the file of --encoding is none of merges,
/// or has another number of tokens than the model
Text read_text(const Options& options);

}  // namespace train_gpt
