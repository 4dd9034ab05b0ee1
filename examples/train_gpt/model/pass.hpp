// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "activations.hpp"
#include "arena.hpp"
#include "block.hpp"
#include "config.hpp"
#include "embedding.hpp"
#include "head.hpp"

namespace train_gpt {

/// One forward and backward pass, block by block, over memory that is laid out once.
/// Each verb takes the weights of one group only, so that a caller may gather them just before and release them
/// just after. Order: embed, block 0 .. L-1, head, then head_backward, block_backward L-1 .. 0, embed_backward.
/// No verb allocates. A pass may work on fewer or shorter sequences than `capacity` (sampling does).
template <class T>
class Pass {
  public:
    using A = Arithmetic<T>;

    /// Bytes of activations and scratch for passes of at most `capacity`; exactly what a Pass uses.
    static std::size_t bytes(const ModelConfig& config, BatchShape capacity) {
        Arena counter;
        Pass(config, capacity, counter);
        return counter.used();
    }

    /// Lays the activations out in `arena`, which must outlive the pass.
    Pass(const ModelConfig& config, BatchShape capacity, Arena& arena)
        : config_(config),
          capacity_(capacity),
          batch_(capacity),
          scratch_(take_scratch<T>(arena, config, capacity)),
          head_(take_head<A>(arena, config, capacity)),
          residuals_(arena.take<A>((config.layers + 1) * capacity.tokens() * config.width)),
          blocks_(take_layers(arena, config, capacity)) {}

    /// The input is the first `batch.batch` sequences of tokens [batch, sequence].
    /// @pre batch fits the capacity
    void embed(BatchShape batch, const EmbeddingWeights<const T*>& w, const std::uint8_t* tokens) {
        batch_ = batch;
        embedding_forward<T>(config_, batch_, w, tokens, residual(0));
    }
    void block(std::size_t layer, const BlockWeights<const T*>& w) {
        block_forward<T>(config_, batch_, w, residual(layer), residual(layer + 1), kept(layer), scratch_);
    }
    /// Leaves the logits [tokens, 256] in logits().
    void head(const HeadWeights<const T*>& w) {
        head_forward<T>(config_, batch_, w, residual(config_.layers), head_, scratch_);
    }
    /// The loss summed over the tokens; logits() become the gradient of `scale` times that sum.
    SummedLoss loss(const std::uint8_t* targets, double scale) {
        return cross_entropy_in_place(batch_.tokens(), targets, static_cast<A>(scale), head_.logits);
    }
    void head_backward(const HeadWeights<const T*>& w, const HeadWeights<T*>& d) {
        train_gpt::head_backward<T>(config_, batch_, w, residual(config_.layers), head_, scratch_, d);
    }
    void block_backward(std::size_t layer, const BlockWeights<const T*>& w, const BlockWeights<T*>& d) {
        train_gpt::block_backward<T>(config_, batch_, w, residual(layer), kept(layer), scratch_, d);
    }
    void embed_backward(const std::uint8_t* tokens, const EmbeddingWeights<T*>& d) {
        embedding_backward<T>(config_, batch_, tokens, scratch_.d_residual, d, scratch_.converted);
    }

    const A* logits() const noexcept { return head_.logits; }

  private:
    /// One layer's kept activations lie behind another's, so the first and the distance are enough.
    struct Layers {
        std::byte* first;
        std::size_t bytes;
    };

    static Layers take_layers(Arena& arena, const ModelConfig& config, BatchShape capacity) {
        Arena counter;
        take_block<A>(counter, config, capacity);
        return {arena.take<std::byte>(config.layers * counter.used()), counter.used()};
    }
    A* residual(std::size_t layer) const noexcept { return residuals_ + layer * capacity_.tokens() * config_.width; }
    BlockActivations<A> kept(std::size_t layer) const {
        Arena arena(blocks_.first + layer * blocks_.bytes, blocks_.bytes);
        return take_block<A>(arena, config_, capacity_);
    }

    ModelConfig config_;
    BatchShape capacity_;
    BatchShape batch_;
    Scratch<A> scratch_;
    HeadActivations<A> head_;
    A* residuals_;  // [layers + 1, tokens, C]
    Layers blocks_;
};

}  // namespace train_gpt
