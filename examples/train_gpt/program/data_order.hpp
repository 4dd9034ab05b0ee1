// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "../model/config.hpp"
#include "../model/initialise.hpp"

namespace train_gpt {

/// Which part of the text each sequence of each step is: a function of seed, step and the sequence's number in the
/// global batch alone, so that every mesh and every number of microbatches trains on the same data.
class DataOrder {
  public:
    /// @pre text.size() > sequence
    DataOrder(std::span<const Token> text, std::size_t sequence, std::uint64_t seed)
        : text_(text), sequence_(sequence), seed_(seed) {}

    constexpr std::size_t start(std::size_t step, std::size_t index) const noexcept {
        return mix(mix(mix(seed_ ^ 0x6461746171U) + step) + index) % (text_.size() - sequence_);
    }

    /// Of `batch` sequences of the step's global batch, from number `first` on, the tokens that a rank of cp holds;
    /// targets are the tokens that follow. Shapes: tokens, targets [batch, part.tokens()].
    void fill(std::size_t step, std::size_t first, std::size_t batch, const shardkit::cp::CausalChunks& part,
              Token* tokens, Token* targets) const {
        for (std::size_t i = 0; i < batch; ++i) {
            const Token* from = text_.data() + start(step, first + i);
            for (std::size_t c = 0; c < part.count(); ++c) {
                const std::size_t place = i * part.tokens() + c * part.chunk();
                std::copy_n(from + part.number(c) * part.chunk(), part.chunk(), tokens + place);
                std::copy_n(from + part.number(c) * part.chunk() + 1, part.chunk(), targets + place);
            }
        }
    }

  private:
    std::span<const Token> text_;
    std::size_t sequence_;
    std::uint64_t seed_;
};

}  // namespace train_gpt
