// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

#include <shardkit/context_parallel/gather_exchange.hpp>
#include <shardkit/context_parallel/ring_exchange.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/tensor_parallel/tokens.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "../model/activations.hpp"
#include "../model/rank_pass.hpp"
#include "../model/split.hpp"
#include "options.hpp"

namespace train_gpt {

/// How the model and the sequences are split, as this rank sees it.
inline Split split_of(const sk::Rank& rank, const Options& options) {
    return options.split(rank.grid().coordinate(sk::Tp::name, rank.rank()),
                         rank.grid().coordinate(sk::Cp::name, rank.rank()));
}

/// Elements of the keys and values of a rank's largest pass.
inline std::size_t exchanged_block(const Options& options) {
    const Split split = options.split();
    return attention_shape(options.model, split, split.local(options.pass_shape())).keys_values();
}
/// What the exchange of a rank's keys and values holds, if activations are S.
template <class S>
std::size_t exchange_bytes(const Options& options, const sk::engine::Traits& engine) {
    const std::size_t block = exchanged_block(options);
    return options.context == ContextExchange::ring
               ? sk::cp::RingExchange<S>::bytes(block, options.mesh.cp, engine)
               : sk::cp::GatherExchange<S>::bytes(block, options.mesh.cp, engine);
}

/// The links of a rank to those that it shares the model and the sequences with, over an engine's communicators.
template <class S>
class EngineLinks final : public Links<S> {
  public:
    /// Collective over the mesh. Passes are of at most the options' shape.
    EngineLinks(sk::Rank& rank, const Options& options)
        : rank_(rank),
          tp_(rank.template sub_mesh<sk::Axes<sk::Tp>>()),
          sequence_parallel_(options.split().splits_tokens() ? sk::tp::SequenceParallel::on
                                                             : sk::tp::SequenceParallel::off),
          exchange_(make_exchange(rank, options)) {}

    const S* gather_tokens(std::span<const S> part, std::span<S> gathered) override {
        return sk::tp::gather_tokens(tp_, sequence_parallel_, part, gathered, rank_.compute_stream()).data();
    }
    void sum_tokens(std::span<Arithmetic<S>> partial, std::span<Arithmetic<S>> sum) override {
        sk::tp::sum_tokens(tp_, sequence_parallel_, partial, sum, rank_.compute_stream());
    }
    void max_over_tp(std::span<Arithmetic<S>> values) override {
        sk::all_reduce_in_place(tp_, sk::ReduceOp::max, values, rank_.compute_stream());
    }
    void sum_over_tp(std::span<Arithmetic<S>> values) override {
        sk::all_reduce_in_place(tp_, sk::ReduceOp::sum, values, rank_.compute_stream());
    }
    void each_block(std::span<const S> own, BlockUse<S> use) override {
        const auto each = [&](std::size_t source, std::span<const S> block) { use(source, block.data(), nullptr); };
        std::visit([&](auto& exchange) { exchange.each(own, each); }, exchange_);
    }
    void each_block_with_gradients(std::span<const S> own, std::span<Arithmetic<S>> d_own, BlockUse<S> use) override {
        const auto each = [&](std::size_t source, std::span<const S> block, std::span<Arithmetic<S>> d_block) {
            use(source, block.data(), d_block.data());
        };
        std::visit([&](auto& exchange) { exchange.each_with_gradients(own, d_own, each); }, exchange_);
    }

  private:
    using Exchange = std::variant<sk::cp::RingExchange<S>, sk::cp::GatherExchange<S>>;
    static Exchange make_exchange(sk::Rank& rank, const Options& options) {
        const auto cp = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        const std::size_t block = exchanged_block(options);
        if (options.context == ContextExchange::ring) { return Exchange(std::in_place_index<0>, rank, cp, block); }
        return Exchange(std::in_place_index<1>, rank, cp, block);
    }

    sk::Rank& rank_;
    sk::Communicator tp_;
    sk::tp::SequenceParallel sequence_parallel_;
    Exchange exchange_;
};

}  // namespace train_gpt
