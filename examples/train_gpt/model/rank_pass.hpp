// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "activations.hpp"
#include "config.hpp"
#include "convert.hpp"
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
    /// make(partial [tokens, C]), a rank's addend, summed over tp into `sum` [outer, C]; rounded once where sums are
    /// wider than what is stored.
    template <class Make>
    void sum(S* sum, const Make& make) const {
        using A = Arithmetic<S>;
        const std::size_t all = tokens() * config.width;
        const std::size_t part = outer() * config.width;
        if constexpr (std::is_same_v<S, A>) {
            A* const partial = split.splits_tokens() ? scratch.partial : sum;
            make(partial);
            links.sum_tokens({partial, all}, {sum, part});
        } else if (split.tp == 1) {
            make(sum);
        } else {
            make(scratch.partial);
            links.sum_tokens({scratch.partial, all}, {scratch.summed, part});
            const A* const wide = split.splits_tokens() ? scratch.summed : scratch.partial;
            place.each(part, Convert<A, S>{wide, sum});
        }
    }
};

}  // namespace train_gpt
