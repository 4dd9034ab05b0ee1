// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../model/parameters.hpp"
#include "../model/place.hpp"
#include "engine_links.hpp"
#include "expert_layers.hpp"
#include "options.hpp"

namespace train_gpt {

/// The GPT's parameters in sharded groups: every transformer block is one, and where the configuration has experts,
/// a layer of them behind each block two. Their policy comes from the command line: a trainer that knows it says
/// Sharded<Group, FullShard>. `Place`: where experts compute.
template <class ElementType, class Place = HostPlace>
class ShardedModel {
  public:
    using T = ElementType;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy>;

    /// Collective over the mesh. Parameters are zero until `groups()` are initialized. Experts have memory for this
    /// rank's largest pass.
    ShardedModel(sk::Rank& rank, const Options& options, const Place& place = {})
        : embedding(rank, "embedding", embedding_shapes<T>(options.model), group_options<EmbeddingGroup<T>>(options)),
          head(rank, "head", head_shapes<T>(options.model), group_options<HeadGroup<T>>(options)) {
        const ModelConfig& config = options.model;
        // Places before groups: a vector that grew would move what an optimizer refers to.
        blocks.reserve(config.layers);
        routers.reserve(config.layers);
        experts.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.emplace_back(rank, "blocks." + std::to_string(l), block_shapes<T>(config),
                                group_options<BlockGroup<T>>(options));
        }
        if (config.head == HeadKind::untied) {
            logits.emplace_back(rank, "logits", logits_shapes<T>(config), group_options<LogitsGroup<T>>(options));
        }
        for (std::size_t l = 0; config.experts > 0 && l < config.layers; ++l) {
            const std::string number = std::to_string(l);
            routers.emplace_back(rank, "routers." + number, router_shapes<T>(config),
                                 group_options<RouterGroup<T>>(options));
            experts.emplace_back(rank, "experts." + number, expert_shapes<T>(config),
                                 group_options<ExpertGroup<T>>(options));
        }
        if (config.experts > 0) {
            const Split split = split_of(rank, options);
            expert_layers.emplace(rank, config, split, split.local(options.pass_shape()).tokens(), place);
        }
    }

    Layer<EmbeddingGroup<T>> embedding;
    std::vector<Layer<BlockGroup<T>>> blocks;
    Layer<HeadGroup<T>> head;
    std::vector<Layer<LogitsGroup<T>>> logits;            // one where the head is untied, else none
    std::vector<Layer<RouterGroup<T>>> routers;           // one for each block with experts
    std::vector<Layer<ExpertGroup<T>>> experts;           // likewise
    std::optional<ExpertLayers<T, Place>> expert_layers;  // of them all
    double auxiliary = 0;                                 // what a pass multiplies its auxiliary loss by

    bool tied() const noexcept { return logits.empty(); }
    auto groups() { return sk::Model{embedding, blocks, head, logits, routers, experts}; }
};

}  // namespace train_gpt
