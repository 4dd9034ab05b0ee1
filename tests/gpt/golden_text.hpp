// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_gpt::test {

/// 26 of the 256 tokens, from one end of the vocabulary to the other; tests/golden/make_gpt_training_golden.py has
/// the same formula.
inline std::vector<Token> make_text(std::size_t count) {
    std::vector<Token> text;
    for (std::size_t i = 0; i < count; ++i) { text.push_back(static_cast<Token>(9 * ((i * i + i / 50) % 26) + 13)); }
    return text;
}

}  // namespace train_gpt::test
