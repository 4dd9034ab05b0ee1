// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "activations.hpp"
#include "config.hpp"
#include "convert.hpp"
#include "split.hpp"

namespace train_gpt {

/// A reference to a callable f(source, keys_values, d_keys_values) that works on one rank's keys and values; the
/// gradients are null in a forward pass. It owns nothing, so passing it takes no memory.
template <class S>
class BlockUse {
    using A = Arithmetic<S>;

  public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, BlockUse>) BlockUse(const F& f)
        : object_(&f), call_([](const void* object, std::size_t source, const S* block, A* d_block) {
              (*static_cast<const F*>(object))(source, block, d_block);
          }) {}

    void operator()(std::size_t source, const S* block, A* d_block) const { call_(object_, source, block, d_block); }

  private:
    const void* object_;
    void (*call_)(const void*, std::size_t, const S*, A*);
};

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
