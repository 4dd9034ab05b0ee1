// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../model/parameters.hpp"

namespace train_gpt {

/// The GPT's parameters in sharded groups, on an engine whose memory is a device's: ShardedModel without experts.
template <class Engine, class ElementType>
struct DeviceModel {
    using T = ElementType;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy, Engine>;

    DeviceModel(sk::Context<Engine>& context, const ModelConfig& config, const sk::DynamicPolicy& policy)
        : embedding(context, "embedding", embedding_shapes<T>(config), {policy}),
          head(context, "head", head_shapes<T>(config), {policy}) {
        blocks.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.emplace_back(context, "blocks." + std::to_string(l), block_shapes<T>(config),
                                typename Layer<BlockGroup<T>>::Options{policy});
        }
        if (config.head == HeadKind::untied) {
            logits.emplace_back(context, "logits", logits_shapes<T>(config),
                                typename Layer<LogitsGroup<T>>::Options{policy});
        }
    }

    Layer<EmbeddingGroup<T>> embedding;
    std::vector<Layer<BlockGroup<T>>> blocks;
    Layer<HeadGroup<T>> head;
    std::vector<Layer<LogitsGroup<T>>> logits;

    bool tied() const noexcept { return logits.empty(); }
    auto groups() { return sk::Model{embedding, blocks, head, logits}; }
};

}  // namespace train_gpt
