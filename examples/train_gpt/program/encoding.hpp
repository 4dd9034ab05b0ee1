// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../model/config.hpp"

namespace train_gpt {

/// How a text is written as tokens: each byte is one, or GPT-2's byte pair encoding with merges of a file.
class Encoding {
  public:
    /// Each byte is a token.
    Encoding();
    /// Of merges, lines "a b" as GPT-2's vocab.bpe and the merges.txt of Hugging Face have them. Tokens are
    /// numbered as GPT-2's: bytes in the order of its vocabulary, the result of each merge, <|endoftext|>.
    /// @throws InputError, which `given` begins, and which names the line that no such file has
    Encoding(std::istream& merges, const std::string& given);

    /// The tokens of a text. That of <|endoftext|> stands for these characters; in bytes, there is none.
    /// @throws InputError, which `given` begins, at a byte that is no UTF-8; bytes alone may be any
    std::vector<Token> encode(std::string_view text, const std::string& given) const;
    /// The bytes of the text that these tokens stand for.
    /// @pre each is below size()
    std::string decode(std::span<const Token> tokens) const;
    std::size_t size() const noexcept { return bytes_of_.size(); }
    /// The token of a byte alone.
    Token of_byte(unsigned char byte) const noexcept { return of_byte_[byte]; }

  private:
    std::vector<Token> merged(std::string_view word) const;

    std::vector<std::string> bytes_of_;
    std::array<Token, bytes_vocabulary> of_byte_{};
    std::unordered_map<std::uint32_t, Token> merges_;  // the first token in the upper half
};

}  // namespace train_gpt
