// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "activations.hpp"
#include "arena.hpp"
#include "block.hpp"
#include "config.hpp"
#include "embedding.hpp"
#include "head.hpp"
#include "rank_pass.hpp"
#include "split.hpp"

namespace train_gpt {

/// One rank's forward and backward pass, block by block, over memory that is laid out once.
/// Each verb takes the weights of one group only, so that a caller may gather them just before and release them
/// just after. Order: embed, block 0 .. L-1, head, then head_backward, block_backward L-1 .. 0, embed_backward.
/// No verb allocates. A pass may work on fewer or shorter sequences than `capacity` (sampling does). Where the model
/// or the sequences are split, all ranks of tp and cp call the same verbs in the same order.
/// `Place` is where they are made.
template <class T, class Place = HostPlace>
class Pass {
  public:
    using S = typename Place::template Storage<T>;  // activations
    using A = Arithmetic<S>;

    /// Bytes of activations and scratch for passes of at most `capacity`; exactly what a Pass uses.
    static std::size_t bytes(const ModelConfig& config, const Split& split, BatchShape capacity,
                             const Place& place = {}) {
        Arena counter;
        Links<S> none;
        Pass(config, split, capacity, none, counter, place);
        return counter.used();
    }

    /// Lays the activations out in `arena`, which must outlive the pass, as must `links`. `capacity`: on this rank.
    Pass(const ModelConfig& config, const Split& split, BatchShape capacity, Links<S>& links, Arena& arena,
         const Place& place = {})
        : most_{config, split, capacity},
          batch_(capacity),
          links_(links),
          place_(place),
          scratch_(laid_out<Scratch<T, Place>>(arena, most_)),
          head_(laid_out<HeadActivations<S>>(arena, most_)),
          residuals_(arena.take<S>((config.layers + 1) * most_.wide())),
          block_bytes_(BlockActivations<S>{{}, most_}.arena.used()),
          blocks_(arena.take<std::byte>((config.recompute ? 1 : config.layers) * block_bytes_)) {}

    /// The input is this rank's part of the first `batch.batch` sequences: tokens [batch, sequence].
    /// @pre batch fits the capacity
    void embed(BatchShape batch, const EmbeddingWeights<const T*>& w, const Token* tokens) {
        batch_ = batch;
        embedding_forward<T>(rank(), w, tokens, residual(0));
    }
    void block(std::size_t layer, const BlockWeights<const T*>& w) {
        block_forward<T>(rank(), w, residual(layer), residual(layer + 1), kept(layer));
        made_ = layer;
    }
    /// Leaves the logits [tokens, split.rows_of_vocabulary] in logits().
    void head(const HeadWeights<const T*>& w) { head_forward<T>(rank(), w, residual(most_.config.layers), head_); }
    /// *sum becomes the loss summed over this rank's tokens; logits() become the gradient of `scale` times that sum.
    void loss(const Token* targets, double scale, double* sum) {
        cross_entropy_in_place(rank(), targets, static_cast<A>(scale), head_, sum);
    }
    void head_backward(const HeadWeights<const T*>& w, const HeadWeights<T*>& d, Into into) {
        train_gpt::head_backward<T>(rank(), w, residual(most_.config.layers), head_, added(d), into);
    }
    void block_backward(std::size_t layer, const BlockWeights<const T*>& w, const BlockWeights<T*>& d, Into into) {
        if (most_.config.recompute && made_ != layer) { block(layer, w); }
        train_gpt::block_backward<T>(rank(), w, residual(layer), kept(layer), added(d), into);
    }
    void embed_backward(const Token* tokens, const EmbeddingWeights<T*>& d) {
        embedding_backward<T>(rank(), tokens, added(d));
    }

    const S* logits() const noexcept { return head_.logits; }
    /// What a layer behind block `layer` changes: the residual stream [outer, C] there, and in the backward pass the
    /// gradient that travels down it.
    S* behind(std::size_t layer) const noexcept { return residual(layer + 1); }
    S* gradient() const noexcept { return scratch_.d_residual; }
    std::size_t outer() const noexcept { return rank().outer(); }
    /// Writes what this rank has of the logits at `position` of the first sequence to their places in `row`
    /// [vocabulary].
    void copy_logits(std::size_t position, std::span<S> row) const {
        const auto now = rank();
        const auto chunks = now.chunks(now.split.cp_index);
        for (std::size_t i = 0; i < batch_.sequence; ++i) {
            if (chunks.position(i) != position) { continue; }
            std::copy_n(head_.logits + i * now.split.rows_of_vocabulary(now.config),
                        now.split.tokens_of_vocabulary(now.config),
                        row.data() + now.split.first_of_vocabulary(now.config));
        }
    }

  private:
    RankPass<T, Place> rank() const { return {{most_.config, most_.split, batch_}, links_, scratch_, place_}; }
    template <class Gradients>
    Gradients added(const Gradients& d) const {
        return most_.split.adds_whole_gradients() ? d : without_whole(d);
    }
    S* residual(std::size_t layer) const noexcept { return residuals_ + layer * most_.wide(); }
    /// With recomputation all layers have the same place.
    BlockActivations<S> kept(std::size_t layer) const {
        return {{blocks_ + (most_.config.recompute ? 0 : layer) * block_bytes_, block_bytes_}, most_};
    }

    RankShape most_;
    BatchShape batch_;
    Links<S>& links_;
    Place place_;
    Scratch<T, Place> scratch_;
    HeadActivations<S> head_;
    S* residuals_;  // [layers + 1, outer, C]
    std::size_t block_bytes_;
    std::byte* blocks_;
    std::size_t made_ = 0;  // the layer whose activations were made last
};

}  // namespace train_gpt
