// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "activations.hpp"
#include "config.hpp"
#include "links.hpp"
#include "split.hpp"

namespace train_gpt {

/// What every layer of one rank's pass refers to.
template <class S, class Place>
struct RankPass {
    const ModelConfig& config;
    const Split& split;
    BatchShape batch;  // of this rank
    Links<S>& links;
    const Scratch<S>& scratch;
    const Place& place;

    std::size_t tokens() const noexcept { return batch.tokens(); }
    /// Of norms and residuals.
    std::size_t outer() const noexcept { return split.outer_tokens(batch); }

    /// All tokens [tokens, C], from the part that a norm gives [outer, C].
    const S* gather(const S* part) const {
        return links.gather_tokens({part, outer() * config.width},
                                   {scratch.gathered, split.splits_tokens() ? tokens() * config.width : 0});
    }
    /// make(partial [tokens, C]), a rank's addend, summed over tp into `sum` [outer, C].
    template <class Make>
    void sum(S* sum, const Make& make) const {
        const std::size_t all = tokens() * config.width;
        S* const partial = split.splits_tokens() ? scratch.partial : sum;
        make(partial);
        links.sum_tokens({partial, all}, {sum, outer() * config.width});
    }
};

}  // namespace train_gpt
