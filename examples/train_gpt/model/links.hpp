// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "convert.hpp"

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

/// What a pass needs of the ranks that it shares the model (tp) and the sequence (cp) with. One rank alone needs
/// nothing: its own values are all there is. S: as activations are stored.
template <class S>
class Links {
  public:
    Links() = default;
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;
    virtual ~Links() = default;

    /// The tokens of all tp ranks, from each rank's part; `part` itself where every rank has all of them.
    virtual const S* gather_tokens(std::span<const S> part, std::span<S> gathered) = 0;
    /// The sum over tp of `partial`: in place, or where norms hold a part of the tokens that part of it in `sum`.
    virtual void sum_tokens(std::span<Arithmetic<S>> partial, std::span<Arithmetic<S>> sum) = 0;
    virtual void max_over_tp(std::span<Arithmetic<S>> values) = 0;
    virtual void sum_over_tp(std::span<Arithmetic<S>> values) = 0;

    /// use(source, block, nullptr) for the keys and values of every cp rank, this one's first or in order.
    virtual void each_block(std::span<const S> own, BlockUse<S> use) = 0;
    /// use(source, block, gradients) likewise; what all ranks add to the gradients of this rank's keys and values is
    /// added to `d_own`.
    virtual void each_block_with_gradients(std::span<const S> own, std::span<Arithmetic<S>> d_own,
                                           BlockUse<S> use) = 0;
};

/// One rank, which holds everything.
template <class S>
class NoLinks final : public Links<S> {
  public:
    const S* gather_tokens(std::span<const S> part, std::span<S>) override { return part.data(); }
    void sum_tokens(std::span<Arithmetic<S>>, std::span<Arithmetic<S>>) override {}
    void max_over_tp(std::span<Arithmetic<S>>) override {}
    void sum_over_tp(std::span<Arithmetic<S>>) override {}
    void each_block(std::span<const S> own, BlockUse<S> use) override { use(0, own.data(), nullptr); }
    void each_block_with_gradients(std::span<const S> own, std::span<Arithmetic<S>> d_own, BlockUse<S> use) override {
        use(0, own.data(), d_own.data());
    }
};

}  // namespace train_gpt
