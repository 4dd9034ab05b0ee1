// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "config.hpp"

namespace train_gpt {

/// Whether norms and residuals are computed for all of a rank's tokens or, with tp, for a part of them on each rank.
enum class SequenceParallel : std::uint8_t { off, on };

/// Which part of the model and of every sequence a rank works on: heads, features and the vocabulary are split over
/// tp, the tokens of a sequence over cp.
struct Split {
    std::size_t tp = 1;
    std::size_t tp_index = 0;
    std::size_t cp = 1;
    std::size_t cp_index = 0;
    SequenceParallel sequence_parallel = SequenceParallel::off;

    /// Norms and residuals hold a part of the tokens.
    constexpr bool splits_tokens() const noexcept { return tp > 1 && sequence_parallel == SequenceParallel::on; }
    /// The gradients of what every tp rank holds whole (norms, biases after a sum, positions) are sums over tp. Where
    /// each rank computes all of one, only the first adds it.
    constexpr bool adds_whole_gradients() const noexcept { return tp_index == 0 || splits_tokens(); }

    constexpr std::size_t heads(const ModelConfig& config) const noexcept { return config.heads / tp; }
    constexpr std::size_t width(const ModelConfig& config) const noexcept { return config.width / tp; }
    constexpr std::size_t rows_of_vocabulary(const ModelConfig& config) const noexcept {
        return config.rows_of_vocabulary() / tp;
    }
    constexpr std::size_t first_of_vocabulary(const ModelConfig& config) const noexcept {
        return tp_index * rows_of_vocabulary(config);
    }
    /// Of these rows, those of tokens that there are: the first ones.
    constexpr std::size_t tokens_of_vocabulary(const ModelConfig& config) const noexcept {
        const std::size_t first = first_of_vocabulary(config);
        return first < config.vocabulary ? std::min(rows_of_vocabulary(config), config.vocabulary - first) : 0;
    }

    /// What this rank holds of `batch` whole sequences.
    constexpr BatchShape local(BatchShape whole) const noexcept { return {whole.batch, whole.sequence / cp}; }
    /// Of a rank's tokens, those of its norms and residuals: [first, first + size).
    constexpr std::size_t outer_tokens(BatchShape local) const noexcept {
        return splits_tokens() ? local.tokens() / tp : local.tokens();
    }
    constexpr std::size_t first_outer_token(BatchShape local) const noexcept {
        return splits_tokens() ? tp_index * outer_tokens(local) : 0;
    }

    /// Which tokens of a sequence of `length` rank `cp_rank` has.
    shardkit::cp::CausalChunks chunks(std::size_t length, std::size_t cp_rank) const {
        return shardkit::cp::CausalChunks::of(length, cp, cp_rank);
    }
    shardkit::cp::CausalChunks chunks(std::size_t length) const { return chunks(length, cp_index); }

    /// Sequences that can be split have a multiple of so many tokens.
    constexpr std::size_t token_unit() const noexcept {
        const std::size_t chunks = cp == 1 ? 1 : 2 * cp;
        const std::size_t parts = cp * (splits_tokens() ? tp : 1);
        std::size_t unit = chunks;
        while (unit % parts != 0) { unit += chunks; }
        return unit;
    }
};

}  // namespace train_gpt
