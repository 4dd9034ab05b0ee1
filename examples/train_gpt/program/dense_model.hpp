// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../model/parameters.hpp"
#include "group_options.hpp"
#include "options.hpp"

namespace train_gpt {

/// The GPT's parameters in sharded groups: every transformer block is one. Its policy comes from the command
/// line: a trainer that knows it says Sharded<Group, FullShard, Engine>. `Gather`: what gathers of the blocks carry.
template <class EngineType, class ElementType, class Gather = ElementType>
struct DenseModel {
    using Engine = EngineType;
    using T = ElementType;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy, Engine>;
    using Block = sk::Sharded<BlockGroup<T>, sk::DynamicPolicy, Engine, sk::Precision<Gather, T>>;

    /// Collective over the mesh. Parameters are zero until `groups()` are initialized.
    DenseModel(sk::Context<Engine>& context, const Options& options)
        : embedding(context, "embedding", embedding_shapes<T>(options.model),
                    group_options<EmbeddingGroup<T>>(options)),
          head(context, "head", head_shapes<T>(options.model), group_options<HeadGroup<T>>(options)) {
        const ModelConfig& config = options.model;
        // Places before groups: a vector that grew would move what an optimizer refers to.
        blocks.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.emplace_back(context, "blocks." + std::to_string(l), block_shapes<T>(config),
                                group_options<BlockGroup<T>>(options));
        }
        if (config.head == HeadKind::untied) {
            logits.emplace_back(context, "logits", logits_shapes<T>(config), group_options<LogitsGroup<T>>(options));
        }
    }

    Layer<EmbeddingGroup<T>> embedding;
    std::vector<Block> blocks;
    Layer<HeadGroup<T>> head;
    std::vector<Layer<LogitsGroup<T>>> logits;  // one where the head is untied, else none

    bool tied() const noexcept { return logits.empty(); }
    auto groups() { return sk::Model{embedding, blocks, head, logits}; }
    /// f(layer) for each of them in that order, with its type.
    template <class F>
    void for_each_layer(const F& f) {
        f(embedding);
        for (auto& block : blocks) { f(block); }
        f(head);
        for (auto& untied : logits) { f(untied); }
    }
};

}  // namespace train_gpt
