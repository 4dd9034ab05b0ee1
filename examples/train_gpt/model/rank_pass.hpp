// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>

#include "activations.hpp"
#include "convert.hpp"

namespace train_gpt {

/// Works on one rank's keys and values: (source, keys and values, their gradients or null in a forward pass). Made
/// by std::ref, so that passing it takes no memory.
template <class S>
using BlockUse = std::function<void(std::size_t source, const S* keys_values, Arithmetic<S>* d_keys_values)>;

/// What a pass needs of the ranks that it shares the model (tp) and the sequence (cp) with. This one is of one rank
/// alone, which holds everything; EngineLinks overrides all of it. S: as activations are stored.
template <class S>
class Links {
  public:
    Links() = default;
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;
    virtual ~Links() = default;

    /// The tokens of all tp ranks, from each rank's part; `part` itself where every rank has all of them.
    virtual const S* gather_tokens(std::span<const S> part, std::span<S> /*gathered*/) { return part.data(); }
    /// The sum over tp of `partial`: in place, or where norms hold a part of the tokens that part of it in `sum`.
    virtual void sum_tokens(std::span<Arithmetic<S>> /*partial*/, std::span<Arithmetic<S>> /*sum*/) {}
    virtual void max_over_tp(std::span<Arithmetic<S>> /*values*/) {}
    virtual void sum_over_tp(std::span<Arithmetic<S>> /*values*/) {}

    /// use(source, block, nullptr) for the keys and values of every cp rank, this one's first or in order.
    virtual void each_block(std::span<const S> own, BlockUse<S> use) { use(0, own.data(), nullptr); }
    /// use(source, block, gradients) likewise; what all ranks add to the gradients of this rank's keys and values is
    /// added to `d_own`.
    virtual void each_block_with_gradients(std::span<const S> own, std::span<Arithmetic<S>> d_own, BlockUse<S> use) {
        use(0, own.data(), d_own.data());
    }
};

/// What every layer of one rank's pass refers to.
template <class T, class Place>
struct RankPass : RankShape {
    using S = typename Place::template Storage<T>;
    using A = Arithmetic<S>;

    Links<S>& links;
    const Scratch<T, Place>& scratch;
    const Place& place;

    /// All tokens [tokens, C], from the part that a norm gives [outer, C].
    const S* gather(const S* norm) const {
        return links.gather_tokens({norm, wide()}, {scratch.gathered, scratch.splits ? all() : 0});
    }
    /// make(partial [tokens, C]), a rank's addend, summed over tp into `sum` [outer, C]; rounded once where sums are
    /// wider than what is stored.
    template <class Make>
    void sum(S* sum, const Make& make) const {
        if constexpr (std::is_same_v<S, A>) {
            A* const partial = scratch.splits ? scratch.partial : sum;
            make(partial);
            links.sum_tokens({partial, all()}, {sum, wide()});
        } else if (split.tp == 1) {
            make(sum);
        } else {
            make(scratch.partial);
            links.sum_tokens({scratch.partial, all()}, {scratch.summed, wide()});
            place.each(wide(), Convert<A, S>{scratch.splits ? scratch.summed : scratch.partial, sum});
        }
    }
};

}  // namespace train_gpt
